// What a TorchScript module holds beside parameters and buffers: constants of its code, and attributes that a forward
// can change.
#pragma once

#include "trainer/models/model.hpp"

#include <torch/csrc/jit/api/module.h>

namespace onebatch {

/// Tensors that are constants of its code or its attributes: what is here before a forward is not made in it.
std::vector<at::Tensor> literals_of(const torch::jit::Module& module);

/// Attributes that are neither parameters, buffers nor modules, with a text that is another where the value is.
std::vector<NamedText> attributes_of(const torch::jit::Module& module);

}  // namespace onebatch
