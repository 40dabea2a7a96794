#include "trainer/io/tensor_file.hpp"

#include "trainer/base/error.hpp"
#include "trainer/base/shape_text.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

namespace onebatch {
namespace {

struct DtypeName {
  const char* name;
  at::ScalarType type;
};

constexpr std::array<DtypeName, 12> k_dtypes = {{{"F64", at::kDouble},
                                                 {"F32", at::kFloat},
                                                 {"F16", at::kHalf},
                                                 {"BF16", at::kBFloat16},
                                                 {"I64", at::kLong},
                                                 {"I32", at::kInt},
                                                 {"I16", at::kShort},
                                                 {"I8", at::kChar},
                                                 {"U32", at::kUInt32},
                                                 {"U16", at::kUInt16},
                                                 {"U8", at::kByte},
                                                 {"BOOL", at::kBool}}};

void copy_entry(const std::filesystem::path& file, const SafetensorsHeader& header, const SafetensorsEntry& entry,
                const NamedTensor& target) {
  const auto type = type_of_dtype(entry.dtype);
  if (!type)
    throw UserError(file.string() + ": tensor " + entry.name + " has the type " + entry.dtype +
                    ", which is not supported");
  const auto bytes = read_safetensors_entry(file, header, entry);
  if (*type == target.tensor.scalar_type()) return copy_from_bytes(target.tensor, bytes);
  const at::NoGradGuard no_grad;
  const at::Tensor read = at::empty(entry.shape, at::TensorOptions().dtype(*type));
  copy_from_bytes(read, bytes);
  target.tensor.copy_(read);
}

std::string differences(const std::map<std::string, const SafetensorsEntry*>& in_file,
                        const std::vector<NamedTensor>& tensors, Extra extra) {
  std::string text;
  auto unknown = in_file;
  for (const auto& [name, tensor] : tensors) {
    unknown.erase(name);
    const auto found = in_file.find(name);
    if (found == in_file.end()) {
      text += "\n  " + name + " " + shape_text(tensor.sizes()) + " is missing";
    } else if (tensor.sizes() != at::IntArrayRef(found->second->shape)) {
      text +=
          "\n  " + name + " is " + shape_text(found->second->shape) + ", the model's is " + shape_text(tensor.sizes());
    }
  }
  if (extra == Extra::ignored) return text;
  for (const auto& [name, entry] : unknown)
    text += "\n  " + name + " " + shape_text(entry->shape) + " is not in the model";
  return text;
}

}  // namespace

std::optional<at::ScalarType> type_of_dtype(const std::string& name) {
  for (const auto& dtype : k_dtypes) {
    if (name == dtype.name) return dtype.type;
  }
  return std::nullopt;
}

bool can_be_saved(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && dtype_of_type(tensor.scalar_type()) != nullptr;
}

std::vector<SafetensorsView> views_of(const std::vector<NamedTensor>& tensors) {
  std::vector<SafetensorsView> views;
  views.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    if (!can_be_saved(tensor)) throw std::invalid_argument(name + ": a tensor of its type cannot be saved");
    if (!tensor.is_cpu() || !tensor.is_contiguous())
      throw std::invalid_argument(name + ": not in host memory without gaps");
    const auto* begin = static_cast<const std::byte*>(tensor.const_data_ptr());
    views.push_back({name, dtype_of_type(tensor.scalar_type()), tensor.sizes().vec(), {begin, tensor.nbytes()}});
  }
  return views;
}

std::vector<NamedTensor> on_host(const std::vector<NamedTensor>& tensors) {
  std::vector<NamedTensor> host;
  host.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) host.push_back({name, tensor.detach().cpu().contiguous()});
  return host;
}

Checksum save_tensors(const std::filesystem::path& file, const std::vector<NamedTensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  const std::vector<NamedTensor> host = on_host(tensors);
  return write_safetensors(file, views_of(host), metadata);
}

void load_tensors(const std::filesystem::path& file, const std::vector<NamedTensor>& tensors, Extra extra) {
  const SafetensorsHeader header = read_safetensors_header(file);
  std::map<std::string, const SafetensorsEntry*> in_file;
  for (const auto& entry : header.entries) in_file[entry.name] = &entry;
  const std::string wrong = differences(in_file, tensors, extra);
  if (!wrong.empty()) throw UserError(file.string() + " does not fit the model:" + wrong);
  for (const auto& target : tensors) copy_entry(file, header, *in_file.at(target.name), target);
}

const char* dtype_of_type(at::ScalarType type) {
  for (const auto& dtype : k_dtypes) {
    if (dtype.type == type) return dtype.name;
  }
  return nullptr;
}

}  // namespace onebatch
