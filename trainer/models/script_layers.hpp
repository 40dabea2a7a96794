// Which operators of a TorchScript module's forward read its tensors, and as what.
#pragma once

#include "trainer/models/layer_calls.hpp"

#include <torch/csrc/jit/api/module.h>

namespace onebatch {

/// Of the code as ScriptGraph has left it.
std::vector<LayerCall> layer_calls_of(const torch::jit::Module& module);

}  // namespace onebatch
