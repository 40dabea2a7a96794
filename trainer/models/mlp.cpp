// A multilayer perceptron: flatten, then Linear, ReLU and dropout per hidden layer, then Linear.
#include "trainer/models/trainable_module.hpp"

#include <ATen/ops/dropout.h>
#include <ATen/ops/relu.h>
#include <torch/nn/modules/linear.h>

namespace onebatch {
namespace {

class Mlp final : public TrainableModule {
 public:
  Mlp(const ModelConfiguration& configuration, std::int64_t num_features, std::int64_t num_classes) : dropout_(configuration.dropout) {
    std::int64_t width = num_features;
    for (const std::int64_t hidden : configuration.hidden) {
      add_layer(width, hidden);
      width = hidden;
    }
    add_layer(width, num_classes);
  }

  at::Tensor forward(const at::Tensor& inputs, const ForwardContext& /*context*/) override {
    at::Tensor x = inputs.flatten(1);
    for (std::size_t i = 0; i + 1 < layers_.size(); ++i) {
      x = at::relu(layers_[i]->forward(x));
      if (dropout_ > 0.0) x = at::dropout(x, dropout_, is_training());
    }
    return layers_.back()->forward(x);
  }

 private:
  void add_layer(std::int64_t from, std::int64_t to) {
    layers_.push_back(register_module("layer" + std::to_string(layers_.size()), torch::nn::Linear(from, to)));
  }

  double dropout_;
  std::vector<torch::nn::Linear> layers_;
};

}  // namespace

std::shared_ptr<TrainableModule> make_mlp(const ModelConfiguration& configuration, std::int64_t num_features, std::int64_t num_classes) {
  return std::make_shared<Mlp>(configuration, num_features, num_classes);
}

}  // namespace onebatch
