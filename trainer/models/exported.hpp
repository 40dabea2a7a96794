// Programs of torch.export, trained: graphs of PyTorch's own operators, and weights. They hold no code.
#pragma once

#include "trainer/models/model.hpp"

namespace onebatch {

struct ExportedRequest {
  std::string file;
  std::string output;  // the one that is the model's; empty: a single one, "logits" or the first
  std::optional<std::vector<std::int64_t>> sample_shape;  // of the data's first input, where it is known
  bool freeze_batch_norm = false;
  bool returns_loss = false;  // two tensors, its loss's sum and weight
};

/// The program that a file of torch.export.save holds. Throws UserError where it cannot be trained, or does not fit the
/// data.
std::unique_ptr<Model> load_exported(const ExportedRequest& request);

}  // namespace onebatch
