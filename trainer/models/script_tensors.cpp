#include "trainer/models/script_tensors.hpp"

#include <ATen/MemoryOverlap.h>

#include <sstream>

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

void separate_expanded_buffers(const torch::jit::Module& module) {
  for (const auto& [name, tensor] : unique_buffers(module)) {
    if (at::has_internal_overlap(tensor) != at::MemOverlap::Yes) continue;
    tensor.unsafeGetTensorImpl()->set_allow_tensor_metadata_change(true);
    at::Tensor(tensor).set_data(tensor.contiguous());
  }
}

}  // namespace onebatch
