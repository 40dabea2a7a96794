// Modules saved from Python by torch.jit.script or torch.jit.trace.
#pragma once

#include "trainer/models/model.hpp"

namespace onebatch {

struct TorchScriptRequest {
  std::string file;
  bool freeze_batch_norm = false;
  bool returns_loss = false;  // two tensors, its loss's sum and weight
};

/// The module that a file holds. Throws UserError where it cannot be trained.
std::unique_ptr<Model> load_torchscript(const TorchScriptRequest& request);

}  // namespace onebatch
