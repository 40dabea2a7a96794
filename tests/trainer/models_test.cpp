#include "trainer/models/model.hpp"

#include "trainer/base/error.hpp"

#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <map>

namespace onebatch {
namespace {

ModelRequest resnet(std::int64_t depth, ResNetStem stem) {
  ModelRequest request;
  request.configuration.kind = "resnet";
  request.configuration.depth = depth;
  request.configuration.stem = stem;
  request.sample_shape = {3, 32, 32};
  request.num_classes = 10;
  return request;
}

std::int64_t num_parameters(const Model& model) {
  std::int64_t count = 0;
  for (const auto& [name, tensor] : model.parameters()) count += tensor.numel();
  return count;
}

TEST(ModelsTest, resnet18_is_torchvisions) {
  const auto model = make_model(resnet(18, ResNetStem::imagenet));
  EXPECT_EQ(num_parameters(*model), 11'181'642) << "torchvision's 11,689,512 with 10 instead of 1,000 classes";
  std::map<std::string, at::Tensor> tensors;
  for (const auto& [name, tensor] : model->parameters()) tensors[name] = tensor;
  EXPECT_EQ(tensors.at("conv1.weight").sizes(), (std::vector<std::int64_t>{64, 3, 7, 7}));
  EXPECT_EQ(tensors.at("layer2.0.downsample.0.weight").sizes(), (std::vector<std::int64_t>{128, 64, 1, 1}));
  EXPECT_TRUE(tensors.contains("layer4.1.bn2.bias"));
  EXPECT_EQ(model->batch_norm_layers().size(), 20U);
}

TEST(ModelsTest, cifar_resnet20_has_the_papers_size) {
  const auto model = make_model(resnet(20, ResNetStem::cifar));
  // He et al. count 0.27 M; projections instead of padded shortcuts add 2,752.
  EXPECT_NEAR(static_cast<double>(num_parameters(*model)), 0.27e6, 0.005e6);
  EXPECT_EQ(model->forward(at::randn({2, 3, 32, 32}), {}).sizes(), (std::vector<std::int64_t>{2, 10}));
}

TEST(ModelsTest, the_seed_makes_the_weights) {
  const auto first = make_model(resnet(8, ResNetStem::cifar));
  const auto again = make_model(resnet(8, ResNetStem::cifar));
  auto other_request = resnet(8, ResNetStem::cifar);
  other_request.seed = 2;
  const auto other = make_model(other_request);
  EXPECT_TRUE(first->parameters()[0].tensor.equal(again->parameters()[0].tensor));
  EXPECT_FALSE(first->parameters()[0].tensor.equal(other->parameters()[0].tensor));
}

TEST(ModelsTest, frozen_batch_norm_keeps_its_statistics) {
  auto request = resnet(8, ResNetStem::cifar);
  request.freeze_batch_norm = true;
  const auto model = make_model(request);
  model->set_phase(Phase::training);
  const auto before = model->buffers()[0].tensor.clone();
  model->forward(at::randn({4, 3, 32, 32}), {});
  EXPECT_TRUE(model->buffers()[0].tensor.equal(before));
  EXPECT_TRUE(model->batch_norm_layers().empty());
}

TEST(ModelsTest, counters_stay_integers_in_another_precision) {
  const auto model = make_model(resnet(8, ResNetStem::cifar));
  model->move_to(c10::Device(c10::kCPU), at::kDouble, at::kDouble);
  for (const auto& [name, tensor] : model->buffers())
    EXPECT_EQ(tensor.scalar_type(), name.ends_with("num_batches_tracked") ? at::kLong : at::kDouble) << name;
}

TEST(ModelsTest, misfits_are_the_users_to_mend) {
  EXPECT_THROW(make_model(resnet(19, ResNetStem::cifar)), UserError);
  EXPECT_THROW(make_model(resnet(50, ResNetStem::imagenet)), UserError) << "never the CIFAR net of 6n + 2 layers";
  auto flat = resnet(18, ResNetStem::imagenet);
  flat.sample_shape = {64};
  EXPECT_THROW(make_model(flat), UserError);
  auto few = resnet(18, ResNetStem::imagenet);
  few.configuration.num_classes = 5;
  EXPECT_THROW(make_model(few), UserError);
}

}  // namespace
}  // namespace onebatch
