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

/// A tensor that is registered under several names keeps its first one.
std::vector<NamedTensor> each_once(std::vector<NamedTensor> tensors);

/// Whether a BatchNorm layer's buffer of this name is one of its running statistics.
inline bool is_running_statistic(const std::string& name) {
  return name == "running_mean" || name == "running_var" || name == "num_batches_tracked";
}

/// BatchNorm layers keep to their running statistics also in training where the request says so.
std::unique_ptr<Model> wrap_module(std::shared_ptr<TrainableModule> module, const ModelRequest& request = {});

}  // namespace onebatch
