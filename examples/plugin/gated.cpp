// A model as a plugin: convolutions whose channels are gated by what the image is like on the whole. model.options is
// the number of channels: "24".
#include <onebatch/plugin.hpp>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace {

namespace nn = torch::nn;

class Gated final : public nn::Module {
 public:
  // Of images [C, H, W].
  Gated(const std::vector<std::int64_t>& shape, std::int64_t channels, std::int64_t classes)
      : conv_(register_module("conv", nn::Conv2d(nn::Conv2dOptions(shape[0], channels, 3).padding(1).bias(false)))),
        norm_(register_module("norm", nn::BatchNorm2d(channels))),
        gate_(register_module("gate", nn::Linear(channels, channels))),
        dropout_(register_module("dropout", nn::Dropout(0.1))),
        head_(register_module("head", nn::Linear(channels * shape[1] * shape[2], classes))) {}

  at::Tensor forward(const at::Tensor& images) {
    const at::Tensor seen = norm_->forward(conv_->forward(images)).relu();
    const at::Tensor gate = gate_->forward(seen.mean({2, 3})).sigmoid();
    return head_->forward(dropout_->forward(seen.mul(gate.unsqueeze(-1).unsqueeze(-1)).flatten(1)));
  }

 private:
  nn::Conv2d conv_;
  nn::BatchNorm2d norm_;
  nn::Linear gate_;
  nn::Dropout dropout_;
  nn::Linear head_;
};

std::shared_ptr<Gated> make(const onebatch::PluginRequest& request) {
  if (request.sample_shape.size() != 3) throw std::invalid_argument("gated takes images [C, H, W]");
  const std::int64_t channels = request.options.empty() ? 16 : std::stoll(request.options);
  return std::make_shared<Gated>(request.sample_shape, channels, request.num_classes);
}

}  // namespace

ONEBATCH_PLUGIN(make);
