// ResNets with basic blocks (He et al., 2016, sections 3.3 and 4.2): depth 18 with four stages of 64 to 512 channels,
// and the CIFAR ones of depth 6n + 2 with three stages of 16, 32 and 64. Tensors are named as torchvision's, shortcuts
// are projections.
#include "trainer/models/resnet.hpp"

#include "trainer/base/error.hpp"
#include "trainer/base/shape_text.hpp"
#include "trainer/models/model_kind.hpp"
#include "trainer/models/single_values.hpp"
#include "trainer/settings/key_types.hpp"

#include <ATen/Context.h>
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>
#include <fmt/format.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

namespace onebatch {
namespace {

torch::nn::Conv2d make_conv(std::int64_t from, std::int64_t to, std::int64_t kernel, std::int64_t stride) {
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(from, to, kernel).stride(stride).padding(kernel / 2).bias(false));
  torch::nn::init::kaiming_normal_(conv->weight, 0.0, torch::kFanOut, torch::kReLU);
  return conv;
}

// As LibTorch's, which refuses one value per channel wherever it is.
class BatchNormImpl final : public torch::nn::BatchNorm2dImpl {
 public:
  explicit BatchNormImpl(std::int64_t channels) : torch::nn::BatchNorm2dImpl(channels) {}

  at::Tensor forward(const at::Tensor& x) {
    if (!is_training() || !takes_single_values()) return torch::nn::BatchNorm2dImpl::forward(x);
    num_batches_tracked.add_(1);
    return at::batch_norm(x, weight, bias, running_mean, running_var, /*training=*/true, options.momentum().value(),
                          options.eps(), at::globalContext().userEnabledCuDNN());
  }
};

std::shared_ptr<BatchNormImpl> make_norm(std::int64_t channels) {
  return std::make_shared<BatchNormImpl>(channels);
}

class BasicBlock final : public torch::nn::Module {
 public:
  BasicBlock(std::int64_t from, std::int64_t to, std::int64_t stride)
      : conv1_(register_module("conv1", make_conv(from, to, 3, stride))),
        bn1_(register_module("bn1", make_norm(to))),
        conv2_(register_module("conv2", make_conv(to, to, 3, 1))),
        bn2_(register_module("bn2", make_norm(to))) {
    if (from == to && stride == 1) return;
    downsample_ = register_module("downsample", torch::nn::Sequential(make_conv(from, to, 1, stride), make_norm(to)));
  }

  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = bn1_->forward(conv1_->forward(x)).relu_();
    y = bn2_->forward(conv2_->forward(y));
    y += downsample_.is_empty() ? x : downsample_->forward(x);
    return y.relu_();
  }

 private:
  torch::nn::Conv2d conv1_;
  std::shared_ptr<BatchNormImpl> bn1_;
  torch::nn::Conv2d conv2_;
  std::shared_ptr<BatchNormImpl> bn2_;
  torch::nn::Sequential downsample_{nullptr};
};

struct ResNetShape {
  std::vector<std::int64_t> stage_channels;
  std::int64_t blocks_per_stage;
};

ResNetShape shape_of_depth(std::int64_t depth) {
  if (depth == 18) return {{64, 128, 256, 512}, 2};
  return {{16, 32, 64}, (depth - 2) / 6};
}

class ResNet final : public TrainableModule {
 public:
  ResNet(const ModelConfiguration& configuration, std::int64_t num_channels, std::int64_t num_classes)
      : pooled_stem_(configuration.stem == ResNetStem::imagenet) {
    const ResNetShape shape = shape_of_depth(configuration.depth);
    std::int64_t width = shape.stage_channels.front();
    conv1_ = register_module(
        "conv1", pooled_stem_ ? make_conv(num_channels, width, 7, 2) : make_conv(num_channels, width, 3, 1));
    bn1_ = register_module("bn1", make_norm(width));
    for (std::size_t stage = 0; stage < shape.stage_channels.size(); ++stage) {
      add_stage(stage, width, shape.stage_channels[stage], shape.blocks_per_stage);
      width = shape.stage_channels[stage];
    }
    fc_ = register_module("fc", torch::nn::Linear(width, num_classes));
  }

  at::Tensor forward(const at::Tensor& inputs, const ForwardContext& /*context*/) override {
    at::Tensor x = bn1_->forward(conv1_->forward(inputs)).relu_();
    if (pooled_stem_) x = at::max_pool2d(x, {3, 3}, {2, 2}, {1, 1});
    for (const auto& block : blocks_) x = block->forward(x);
    return fc_->forward(at::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
  }

 private:
  void add_stage(std::size_t stage, std::int64_t from, std::int64_t to, std::int64_t num_blocks) {
    auto layer = register_module(fmt::format("layer{}", stage + 1), std::make_shared<BlockList>());
    for (std::int64_t i = 0; i < num_blocks; ++i) {
      const std::int64_t stride = (stage > 0 && i == 0) ? 2 : 1;
      blocks_.push_back(layer->add(fmt::to_string(i), std::make_shared<BasicBlock>(i == 0 ? from : to, to, stride)));
    }
  }

  struct BlockList final : torch::nn::Module {
    std::shared_ptr<BasicBlock> add(const std::string& name, std::shared_ptr<BasicBlock> block) {
      return register_module(name, std::move(block));
    }
  };

  bool pooled_stem_;
  torch::nn::Conv2d conv1_{nullptr};
  std::shared_ptr<BatchNormImpl> bn1_;
  std::vector<std::shared_ptr<BasicBlock>> blocks_;
  torch::nn::Linear fc_{nullptr};
};

// Which depths are built in: a number alone does not tell an ImageNet ResNet from a CIFAR one (50 is 6n + 2 as well).
// What is wrong with it, in words that say what to write instead; empty: nothing. Depth 18 is He et al.'s of four
// stages with either stem, 6n + 2 are the CIFAR ones of three stages, which begin with the cifar stem.
std::string wrong_depth(const ModelConfiguration& model) {
  if (model.depth == 18) return {};
  const bool cifar_depth = model.depth >= 8 && (model.depth - 2) % 6 == 0;
  if (model.stem == ResNetStem::cifar)
    return cifar_depth ? "" : "write 18, or 8, 14, 20, … (6n + 2) for the CIFAR ResNets";
  const std::string imagenet =
      "with model.stem = \"imagenet\" write 18; others, as 34 and 50, come from Python as model.kind = \"torchscript\"";
  return imagenet +
         (cifar_depth ? fmt::format("; the CIFAR ResNet of {} layers needs model.stem = \"cifar\"", model.depth) : "");
}

std::unique_ptr<Model> make_model_of(const ModelRequest& request) {
  if (request.sample_shape.size() != 3)
    throw UserError("model.kind = \"resnet\" takes images [C, H, W], but a sample of the data is " +
                    shape_text(request.sample_shape) + ": use model.kind = \"mlp\"");
  return wrap_module(make_resnet(request.configuration, request.sample_shape[0], outputs_of(request)), request);
}

}  // namespace

std::shared_ptr<TrainableModule> make_resnet(const ModelConfiguration& configuration, std::int64_t num_channels,
                                             std::int64_t num_classes) {
  if (const std::string wrong = wrong_depth(configuration); !wrong.empty())
    throw UserError(fmt::format("model.depth = {}: {}", configuration.depth, wrong));
  return std::make_shared<ResNet>(configuration, num_channels, num_classes);
}

ModelKind resnet_kind() {
  constexpr Changes k_all = Changes::result | Changes::probe | Changes::run;
  ModelKind kind;
  kind.name = "resnet";
  kind.keys = {
      integer_key({"depth", k_all,
                   "resnet: 18, with either stem; with the cifar stem also 6n + 2 (8, 14, 20, …), the CIFAR ResNets. "
                   "Others, as 34 and 50, come from Python"},
                  8, 1202, &ModelConfiguration::depth),
      choice_key({"stem", k_all, "resnet: `\"imagenet\"` (7x7, pooling) or `\"cifar\"` (3x3, no pooling)"},
                 {{"imagenet", ResNetStem::imagenet}, {"cifar", ResNetStem::cifar}}, &ModelConfiguration::stem)};
  kind.check = [](const ModelConfiguration& model, const CheckRequest& request) {
    if (const std::string wrong = wrong_depth(model); !wrong.empty()) request.complain("depth", wrong);
  };
  kind.make = make_model_of;
  return kind;
}

}  // namespace onebatch
