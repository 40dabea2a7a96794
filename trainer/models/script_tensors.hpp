// A TorchScript module's tensors under their names: each once, and as PyTorch's state_dict lists them.
#pragma once

#include "trainer/models/model.hpp"

#include <torch/csrc/jit/api/module.h>

#include <set>

namespace onebatch {

/// The name under which a file of torch.jit.save carries, in `_extra_files`, a line for each buffer that is not
/// persistent: what register_buffer(…, persistent=False) says is not in a TorchScript archive.
inline constexpr const char* k_non_persistent_file = "non_persistent_buffers";

/// Parameters, and buffers, each once under its first name: a weight that is tied, or a module under two names, is one.
std::vector<NamedTensor> unique_parameters(const torch::jit::Module& module);
std::vector<NamedTensor> unique_buffers(const torch::jit::Module& module);

/// Every tensor under every name, without the buffers of `non_persistent`.
std::vector<NamedTensor> state_dict_of(const torch::jit::Module& module, const std::set<std::string>& non_persistent);

/// The attribute of a full name ("layer1.0.bn1.weight"); undefined where it is no tensor.
at::Tensor tensor_named(const torch::jit::Module& module, const std::string& name);

/// Buffers whose elements share memory among themselves (expand) get their own.
void separate_expanded_buffers(const torch::jit::Module& module);

}  // namespace onebatch
