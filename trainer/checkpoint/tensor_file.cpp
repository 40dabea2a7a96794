#include "trainer/checkpoint/tensor_file.hpp"

#include "trainer/error.hpp"
#include "trainer/formatted.hpp"
#include "trainer/replica_state.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <set>
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

const char* dtype_name(at::ScalarType type) {
  for (const auto& dtype : k_dtypes) {
    if (dtype.type == type) return dtype.name;
  }
  return nullptr;
}

bool can_be_saved(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && dtype_name(tensor.scalar_type()) != nullptr;
}

// What has one name in the file or several, of which any will do.
std::vector<NamedTensor> named_as_in(const Model& model, const std::map<std::string, const SafetensorsEntry*>& in_file) {
  std::vector<NamedTensor> all = state_of(model);
  for (NamedTensor& item : model.state_dict()) all.push_back(std::move(item));
  std::set<const c10::TensorImpl*> found;
  std::set<std::string> names;
  std::vector<NamedTensor> wanted;
  for (const NamedTensor& item : all) {
    if (!in_file.contains(item.name) || !names.insert(item.name).second) continue;
    found.insert(item.tensor.unsafeGetTensorImpl());
    wanted.push_back(item);
  }
  const std::vector<std::string> statistics = model.running_statistics();
  for (const NamedTensor& item : model.parameters()) {
    if (!found.contains(item.tensor.unsafeGetTensorImpl())) wanted.push_back(item);
  }
  for (const NamedTensor& item : model.buffers()) {
    const bool must_be_there = std::ranges::find(statistics, item.name) != statistics.end();
    if (must_be_there && !found.contains(item.tensor.unsafeGetTensorImpl())) wanted.push_back(item);
  }
  return wanted;
}

// Throws where the file has two values for what is one tensor in the model.
void check_shared(const std::filesystem::path& file, const SafetensorsHeader& header, const std::vector<NamedTensor>& tensors,
                  const std::map<std::string, const SafetensorsEntry*>& in_file) {
  std::map<const c10::TensorImpl*, std::string> first;
  for (const auto& [name, tensor] : tensors) {
    const auto [other, is_new] = first.emplace(tensor.unsafeGetTensorImpl(), name);
    if (is_new) continue;
    if (read_safetensors_entry(file, header, *in_file.at(name)) != read_safetensors_entry(file, header, *in_file.at(other->second)))
      throw UserError(file.string() + ": " + other->second + " and " + name + " are one tensor in the model, but differ in the file");
  }
}

void copy_entry(const std::filesystem::path& file, const SafetensorsHeader& header, const SafetensorsEntry& entry,
                const NamedTensor& target) {
  const auto type = type_of_dtype(entry.dtype);
  if (!type) throw UserError(file.string() + ": tensor " + entry.name + " has the type " + entry.dtype + ", which is not supported");
  const auto bytes = read_safetensors_entry(file, header, entry);
  if (*type == target.tensor.scalar_type()) return copy_from_bytes(target.tensor, bytes);
  const at::NoGradGuard no_grad;
  const at::Tensor read = at::empty(entry.shape, at::TensorOptions().dtype(*type));
  copy_from_bytes(read, bytes);
  target.tensor.copy_(read);
}

std::string differences(const std::map<std::string, const SafetensorsEntry*>& in_file, const std::vector<NamedTensor>& tensors,
                        Extra extra) {
  std::string text;
  auto unknown = in_file;
  for (const auto& [name, tensor] : tensors) {
    unknown.erase(name);
    const auto found = in_file.find(name);
    if (found == in_file.end()) {
      text += "\n  " + name + " " + shape_text(tensor.sizes()) + " is missing";
    } else if (tensor.sizes() != at::IntArrayRef(found->second->shape)) {
      text += "\n  " + name + " is " + shape_text(found->second->shape) + ", the model's is " + shape_text(tensor.sizes());
    }
  }
  if (extra == Extra::ignored) return text;
  for (const auto& [name, entry] : unknown) text += "\n  " + name + " " + shape_text(entry->shape) + " is not in the model";
  return text;
}

}  // namespace

std::optional<at::ScalarType> type_of_dtype(const std::string& name) {
  for (const auto& dtype : k_dtypes) {
    if (name == dtype.name) return dtype.type;
  }
  return std::nullopt;
}

std::vector<SafetensorsView> views_of(const std::vector<NamedTensor>& tensors) {
  std::vector<SafetensorsView> views;
  views.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    if (!can_be_saved(tensor)) throw std::invalid_argument(name + ": a tensor of its type cannot be saved");
    if (!tensor.is_cpu() || !tensor.is_contiguous()) throw std::invalid_argument(name + ": not in host memory without gaps");
    const auto* begin = static_cast<const std::byte*>(tensor.const_data_ptr());
    views.push_back({name, dtype_name(tensor.scalar_type()), tensor.sizes().vec(), {begin, tensor.nbytes()}});
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

void check_savable(const Model& model) {
  for (const auto& [name, tensor] : model.parameters()) {
    if (tensor.is_complex())
      throw UserError(
          "the parameter " + name + " is complex (" + c10::toString(tensor.scalar_type()) +
          "), which is not trained here: keep real and imaginary part as one real parameter, and make it complex in the forward "
          "(torch.view_as_complex)");
  }
  for (const auto& [name, tensor] : state_of(model)) {
    if (can_be_saved(tensor)) continue;
    throw UserError(name + " is " +
                    (tensor.layout() == at::kStrided ? std::string("of type ") + c10::toString(tensor.scalar_type()) : "sparse") +
                    ", which no checkpoint holds (safetensors): keep it in another type (complex: torch.view_as_real), or make it in the "
                    "forward");
  }
}

void load_weights(Model& model, const std::string& file) {
  const SafetensorsHeader header = read_safetensors_header(file);
  std::map<std::string, const SafetensorsEntry*> in_file;
  for (const auto& entry : header.entries) in_file[entry.name] = &entry;
  const std::vector<NamedTensor> tensors = named_as_in(model, in_file);
  for (const auto& [name, tensor] : tensors) {
    const auto found = in_file.find(name);
    if (found == in_file.end() || type_of_dtype(found->second->dtype) != at::kDouble || !tensor.is_floating_point()) continue;
    tensor.unsafeGetTensorImpl()->set_allow_tensor_metadata_change(true);
    at::Tensor(tensor).set_data(tensor.to(at::kDouble));  // until the model moves to the run's type, which may be as wide
  }
  load_tensors(file, tensors, Extra::refused);
  check_shared(file, header, tensors, in_file);
}

}  // namespace onebatch
