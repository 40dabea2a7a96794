// A model of one's own: two linear layers with a narrow waist. model.kind = "bottleneck", model.waist = 8.
#include <onebatch/kinds.hpp>

#include <c10/util/accumulate.h>
#include <torch/nn/modules/linear.h>

namespace {

using namespace onebatch;

const Option<ModelConfiguration, std::int64_t> k_waist{"waist", 8};

class Bottleneck final : public TrainableModule {
 public:
  Bottleneck(std::int64_t inputs, std::int64_t waist, std::int64_t outputs)
      : narrow_(register_module("narrow", torch::nn::Linear(inputs, waist))),
        wide_(register_module("wide", torch::nn::Linear(waist, outputs))) {}

  at::Tensor forward(const at::Tensor& inputs, const ForwardContext&) override {
    return wide_->forward(narrow_->forward(inputs.flatten(1)).relu());
  }

 private:
  torch::nn::Linear narrow_;
  torch::nn::Linear wide_;
};

ModelKind bottleneck() {
  ModelKind kind;
  kind.name = "bottleneck";
  kind.keys = {
      integer_key({"waist", Changes::result | Changes::probe | Changes::run, "bottleneck: width of the hidden layer"},
                  1, 4096, k_waist)};
  kind.make = [](const ModelRequest& request) {
    const std::int64_t inputs = c10::multiply_integers(request.sample_shape);
    const std::int64_t waist = k_waist(request.configuration);
    return wrap_module(std::make_shared<Bottleneck>(inputs, waist, classes_of(request)), request);
  };
  return kind;
}

[[maybe_unused]] const bool k_registered = (register_kind(bottleneck()), true);

}  // namespace
