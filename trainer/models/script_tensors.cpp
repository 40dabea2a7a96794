#include "trainer/models/script_tensors.hpp"

#include "trainer/error.hpp"

#include <ATen/MemoryOverlap.h>

#include <map>
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

void separate_memory(const torch::jit::Module& module, const std::string& file) {
  const auto parameters = unique_parameters(module);
  const auto buffers = unique_buffers(module);
  for (const auto& [name, tensor] : buffers) {
    if (at::has_internal_overlap(tensor) != at::MemOverlap::Yes) continue;
    tensor.unsafeGetTensorImpl()->set_allow_tensor_metadata_change(true);
    at::Tensor(tensor).set_data(tensor.contiguous());
  }
  std::map<const c10::StorageImpl*, std::string> owners;
  const auto check = [&](const NamedTensor& item) {
    if (!item.tensor.has_storage() || item.tensor.numel() == 0) return;
    const auto [owner, is_new] = owners.emplace(item.tensor.storage().unsafeGetStorageImpl(), item.name);
    if (!is_new)
      throw UserError(file + ": " + item.name + " lies in the memory of the parameter " + owner->second +
                      ", but is another tensor: make it the same parameter (b.weight = a.weight), or copy it (clone())");
  };
  for (const NamedTensor& parameter : parameters) check(parameter);
  for (const NamedTensor& buffer : buffers) {
    if (buffer.tensor.has_storage() && owners.contains(buffer.tensor.storage().unsafeGetStorageImpl())) check(buffer);
  }
}

}  // namespace onebatch
