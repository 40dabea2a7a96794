#include "trainer/models/module_kind.hpp"

#include "trainer/base/error.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

namespace onebatch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace nn = torch::nn;

struct OneOrTwo : nn::Module {
  OneOrTwo() { register_parameter("scale", at::ones({1}).mul_(2.0)); }
  at::Tensor forward(const at::Tensor& one, const at::Tensor& other = {}) {
    const at::Tensor scaled = one.mul(parameters()[0]);
    return other.defined() ? scaled.sub(other) : scaled;
  }
};

struct AnyNumber : nn::Module {
  AnyNumber() { register_parameter("scale", at::ones({1})); }
  at::Tensor forward(const std::vector<at::Tensor>& all) { return at::cat(all, 1).sum(1).mul(parameters()[0]); }
};

struct SumAndWeight : nn::Module {
  SumAndWeight() { register_parameter("scale", at::ones({1})); }
  std::tuple<at::Tensor, at::Tensor> forward(at::Tensor inputs, at::Tensor targets) {
    return {inputs.mul(parameters()[0]).sub(targets).sum(), at::ones({}).mul(static_cast<double>(inputs.size(0)))};
  }
};

// One weight under two names, and a layer under two.
struct Tied : nn::Module {
  Tied() {
    auto weight = register_parameter("weight", at::ones({3}));
    register_parameter("same", weight);
    auto norm = register_module("norm", nn::BatchNorm1d(3));
    register_module("again", norm);
  }
  at::Tensor forward(const at::Tensor& inputs) { return inputs.mul(parameters()[0]); }
};

const at::Tensor k_ones = at::ones({4, 3});

std::unique_ptr<Model> wrapped(CallableModule made, ModelRequest request = {}) {
  return wrap_module(std::move(made), request, "model.kind = \"mine\"");
}

template <typename Work>
std::string words_of(const Work& work) {
  try {
    work();
  } catch (const UserError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(ModuleKindTest, a_forward_is_called_with_as_many_tensors_as_there_are) {
  const auto model = wrapped(std::make_shared<OneOrTwo>());
  EXPECT_EQ(model->run({k_ones}, {}).front().sum().item<double>(), 24.0);
  EXPECT_EQ(model->run({k_ones, k_ones}, {}).front().sum().item<double>(), 12.0);
  EXPECT_THAT(words_of([&] { model->run({k_ones, k_ones, k_ones}, {}); }), HasSubstr("is given 3 tensor(s)"));
}

TEST(ModuleKindTest, a_forward_of_a_list_takes_any_number) {
  const auto model = wrapped(std::make_shared<AnyNumber>());
  EXPECT_EQ(model->run({k_ones, k_ones, k_ones}, {}).front().sum().item<double>(), 36.0);
}

TEST(ModuleKindTest, a_holder_is_a_module) {
  const auto model = wrapped(nn::Sequential(nn::Linear(3, 2), nn::BatchNorm1d(2)));
  EXPECT_EQ(model->run({k_ones}, {}).front().sizes(), (std::vector<std::int64_t>{4, 2}));
  EXPECT_THAT(model->batch_norm_layers(), ElementsAre("1"));
  EXPECT_THAT(model->running_statistics(), ElementsAre("1.running_mean", "1.running_var", "1.num_batches_tracked"));
}

TEST(ModuleKindTest, a_model_may_be_one_batch_norm_layer_and_be_frozen) {
  EXPECT_THAT(wrapped(nn::BatchNorm1d(3))->running_statistics(),
              ElementsAre("running_mean", "running_var", "num_batches_tracked"));
  ModelRequest frozen;
  frozen.freeze_batch_norm = true;
  const auto model = wrapped(nn::BatchNorm1d(3), frozen);
  EXPECT_TRUE(model->batch_norm_layers().empty());
  model->run({k_ones.mul(7.0)}, {});
  EXPECT_EQ(model->buffers().front().tensor.sum().item<double>(), 0.0) << "its running mean";
}

TEST(ModuleKindTest, a_loss_of_its_own_is_two_tensors_where_it_is_asked_for) {
  ModelRequest request;
  request.returns_loss = true;
  const auto returned = wrapped(std::make_shared<SumAndWeight>(), request)->run({k_ones, k_ones}, {});
  ASSERT_EQ(returned.size(), 2U);
  EXPECT_EQ(returned[1].item<double>(), 4.0);
  EXPECT_THAT(words_of([&] { wrapped(std::make_shared<OneOrTwo>(), request)->run({k_ones}, {}); }),
              HasSubstr("returns 1 tensors, not two"));
  EXPECT_THAT(words_of([&] {
                wrapped(std::make_shared<SumAndWeight>())->run({k_ones, k_ones}, {});
              }),
              HasSubstr("returns 2 tensors, not one"));
}

TEST(ModuleKindTest, what_has_two_names_is_trained_once_and_saved_under_both) {
  const auto model = wrapped(std::make_shared<Tied>());
  std::vector<std::string> trained;
  for (const NamedTensor& one : model->parameters()) trained.push_back(one.name);
  EXPECT_THAT(trained, ElementsAre("weight", "norm.weight", "norm.bias"));
  EXPECT_EQ(model->buffers().size(), 3U);
  EXPECT_EQ(model->state_dict().size(), 12U) << "2 names of one weight, 2 layers of 2 parameters and 3 statistics";
  EXPECT_THAT(model->batch_norm_layers(), ElementsAre("norm"));
  model->move_to(c10::kCPU, at::kDouble, at::kDouble);
  EXPECT_EQ(model->parameters().size(), 3U);
}

TEST(ModuleKindTest, what_cannot_be_trained_is_refused) {
  EXPECT_THAT(words_of([] { wrapped(std::shared_ptr<OneOrTwo>()); }), HasSubstr("null pointer"));
  EXPECT_THAT(words_of([] { wrapped(nn::Linear(nullptr)); }), HasSubstr("null pointer"));
  EXPECT_THAT(words_of([] { wrapped(nn::BatchNorm1d(nn::BatchNormOptions(3).affine(false))); }),
              HasSubstr("no parameter of the module requires a gradient"));
  nn::Linear elsewhere(3, 2);
  elsewhere->register_parameter("moved", at::ones({2}, at::TensorOptions().device(at::kMeta)));
  EXPECT_THAT(words_of([&] { wrapped(elsewhere); }), HasSubstr("moved is on meta"));
}

TEST(ModuleKindTest, a_kind_is_known_by_its_name) {
  register_kind(module_kind("linear of a test", [](const ModelRequest& request) {
    return nn::Linear(request.sample_shape[0], request.num_classes);
  }));
  ModelRequest request;
  request.configuration.kind = "linear of a test";
  request.sample_shape = {3};
  request.num_classes = 5;
  EXPECT_EQ(make_model(request)->parameters().front().tensor.sizes(), (std::vector<std::int64_t>{5, 3}));
}

}  // namespace
}  // namespace onebatch
