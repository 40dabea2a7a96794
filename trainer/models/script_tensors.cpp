#include "trainer/models/script_tensors.hpp"

#include "trainer/error.hpp"

#include <ATen/MemoryOverlap.h>

#include <cstddef>
#include <sstream>
#include <vector>

namespace onebatch {
namespace {

template <typename List>
std::vector<NamedTensor> unique(const List& list) {
  std::set<const c10::TensorImpl*> seen;
  std::vector<NamedTensor> tensors;
  for (const auto& item : list) {
    if (seen.insert(item.value.unsafeGetTensorImpl()).second) tensors.push_back({item.name, item.value});
  }
  return tensors;
}

// The bytes that a tensor's elements lie in.
struct Extent {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  std::string name;
};

Extent extent_of(const NamedTensor& item) {
  if (!item.tensor.has_storage() || item.tensor.numel() == 0) return {nullptr, nullptr, item.name};
  std::int64_t last = 0;
  for (std::int64_t d = 0; d < item.tensor.dim(); ++d) last += (item.tensor.size(d) - 1) * item.tensor.stride(d);
  const auto* begin = static_cast<const std::byte*>(item.tensor.const_data_ptr());
  return {begin, begin + (last + 1) * static_cast<std::int64_t>(item.tensor.element_size()), item.name};
}

}  // namespace

std::vector<NamedTensor> unique_parameters(const torch::jit::Module& module) {
  return unique(module.named_parameters());
}

std::vector<NamedTensor> unique_buffers(const torch::jit::Module& module) {
  return unique(module.named_buffers());
}

std::vector<NamedTensor> state_dict_of(const torch::jit::Module& module, const std::set<std::string>& non_persistent) {
  std::vector<NamedTensor> tensors;
  for (const auto& item : module.named_parameters()) tensors.push_back({item.name, item.value});
  for (const auto& item : module.named_buffers()) {
    if (!non_persistent.contains(item.name)) tensors.push_back({item.name, item.value});
  }
  return tensors;
}

at::Tensor tensor_named(const torch::jit::Module& module, const std::string& name) {
  std::istringstream parts(name);
  c10::IValue value = module._ivalue();
  for (std::string part; std::getline(parts, part, '.');) {
    if (!value.isObject() || !value.toObjectRef().type()->findAttribute(part)) return {};
    value = value.toObjectRef().getAttr(part);
  }
  return value.isTensor() ? value.toTensor() : at::Tensor();
}

void separate_memory(const torch::jit::Module& module, const std::string& file) {
  const auto parameters = unique_parameters(module);
  const auto buffers = unique_buffers(module);
  for (const auto& [name, tensor] : buffers) {
    if (at::has_internal_overlap(tensor) != at::MemOverlap::Yes) continue;
    tensor.unsafeGetTensorImpl()->set_allow_tensor_metadata_change(true);
    at::Tensor(tensor).set_data(tensor.contiguous());
  }
  std::vector<Extent> owned;
  const auto check = [&](const NamedTensor& item) {
    const Extent own = extent_of(item);
    for (const Extent& other : owned) {
      if (own.begin < other.end && other.begin < own.end)
        throw UserError(file + ": " + item.name + " and the parameter " + other.name +
                        " share memory, but are two tensors: make them one parameter (b.weight = a.weight), or copy one (clone())");
    }
    return own;
  };
  for (const NamedTensor& parameter : parameters) owned.push_back(check(parameter));
  for (const NamedTensor& buffer : buffers) check(buffer);
}

}  // namespace onebatch
