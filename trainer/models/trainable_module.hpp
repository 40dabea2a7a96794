// C++ modules as models: what a built-in architecture derives from.
#pragma once

#include "trainer/models/model.hpp"

#include <torch/nn/module.h>

namespace onebatch {

class TrainableModule : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& inputs, const ForwardContext& context) = 0;
};

/// Of a module's named_parameters() or named_buffers().
template <typename Dictionary>
std::vector<NamedTensor> named_tensors(const Dictionary& dictionary) {
  std::vector<NamedTensor> named;
  for (const auto& item : dictionary) named.push_back({item.key(), item.value()});
  return named;
}

/// Whether a BatchNorm layer's buffer of this name is one of its running statistics.
inline bool is_running_statistic(const std::string& name) {
  return name == "running_mean" || name == "running_var" || name == "num_batches_tracked";
}

/// The module that a file holds, saved from Python by torch.jit.script or torch.jit.trace. Throws UserError where it cannot be trained.
struct TorchScriptRequest {
  std::string file;
  bool freeze_batch_norm = false;
  bool returns_loss = false;  // two tensors, its loss's sum and weight
};
std::unique_ptr<Model> load_torchscript(const TorchScriptRequest& request);

/// `freeze_batch_norm`: BatchNorm layers keep to their running statistics also in training.
std::unique_ptr<Model> wrap_module(std::shared_ptr<TrainableModule> module, bool freeze_batch_norm);

std::shared_ptr<TrainableModule> make_mlp(const ModelConfiguration& configuration, std::int64_t num_features, std::int64_t num_classes);
std::shared_ptr<TrainableModule> make_resnet(const ModelConfiguration& configuration, std::int64_t num_channels, std::int64_t num_classes);

}  // namespace onebatch
