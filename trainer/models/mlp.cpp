// A multilayer perceptron: flatten, then Linear, ReLU and dropout per hidden layer, then Linear.
#include "trainer/models/model_kind.hpp"
#include "trainer/models/trainable_module.hpp"
#include "trainer/settings/key_types.hpp"

#include <ATen/ops/dropout.h>
#include <ATen/ops/relu.h>
#include <c10/util/accumulate.h>
#include <fmt/format.h>
#include <torch/nn/modules/linear.h>

namespace onebatch {
namespace {

class Mlp final : public TrainableModule {
 public:
  Mlp(const ModelConfiguration& configuration, std::int64_t num_features, std::int64_t num_classes)
      : dropout_(configuration.dropout) {
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
    layers_.push_back(register_module(fmt::format("layer{}", layers_.size()), torch::nn::Linear(from, to)));
  }

  double dropout_;
  std::vector<torch::nn::Linear> layers_;
};

}  // namespace

ModelKind mlp_kind() {
  constexpr Changes k_all = Changes::result | Changes::probe | Changes::run;
  ModelKind kind;
  kind.name = "mlp";
  kind.keys = {
      integers_key({"hidden", k_all, "mlp: widths of the hidden layers"}, 1, &ModelConfiguration::hidden),
      number_key(
          {"dropout", k_all,
           "mlp; as in every model, the mask is a function of seed, step, layer and sample, the same under any plan"},
          {0.0, 0.999}, &ModelConfiguration::dropout)};
  kind.make = [](const ModelRequest& request) {
    const std::int64_t num_features = c10::multiply_integers(request.sample_shape);
    return wrap_module(std::make_shared<Mlp>(request.configuration, num_features, outputs_of(request)), request);
  };
  return kind;
}

}  // namespace onebatch
