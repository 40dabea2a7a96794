// Parameters whose elements do not lie row by row: gradients, moments and updates follow them.
#include "trainer/models/layout.hpp"

#include "trainer/base/error.hpp"
#include "trainer/graph/saved_values.hpp"
#include "trainer/optim/optimizer.hpp"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

namespace onebatch {
namespace {

at::Tensor trained(const at::Tensor& tensor) {
  return tensor.detach().set_requires_grad(true);
}

// A convolution's weight in channels_last, a transposed matrix, a vector, and a weight whose strides are ambiguous.
std::vector<NamedTensor> odd_parameters(at::ScalarType type) {
  at::manual_seed(5);
  const auto options = at::TensorOptions().dtype(type);
  return {{"conv", trained(at::randn({4, 3, 5, 2}, options).contiguous(at::MemoryFormat::ChannelsLast))},
          {"transposed", trained(at::randn({3, 7}, options).t())},
          {"bias", trained(at::randn({5}, options))},
          {"pointwise", trained(at::randn({6, 2, 1, 1}, options).contiguous(at::MemoryFormat::ChannelsLast))}};
}

// Each element has a gradient of its own: twice its index by rows.
at::Tensor loss_of(const std::vector<NamedTensor>& parameters) {
  at::Tensor loss = at::zeros({}, parameters.front().tensor.options().requires_grad(false));
  for (const NamedTensor& parameter : parameters) {
    const at::Tensor weights = at::arange(parameter.tensor.numel(), parameter.tensor.options().requires_grad(false));
    loss = loss + (parameter.tensor.reshape({-1}) * weights).sum() * 2.0;
  }
  return loss;
}

at::Tensor expected_gradient(const at::Tensor& parameter) {
  return at::arange(parameter.numel(), at::kDouble).mul(2.0).view(parameter.sizes());
}

TEST(LayoutTest, gradients_have_their_parameters_strides_and_values) {
  for (const bool reproducible : {false, true}) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      const auto parameters = odd_parameters(type);
      FlatGradients gradients(parameters, {.type = type, .reproducible = reproducible});
      for (int attempt = 0; attempt < 2; ++attempt) {  // a reproducible sum learns its bases from the first
        gradients.begin_step();
        loss_of(parameters).backward();
        gradients.complete_sum();
        if (reproducible) gradients.reproducible()->follow(gradients.reproducible()->largest());
      }
      gradients.finish_sum(1.0);
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        EXPECT_EQ(gradients.views()[i].strides(), parameters[i].tensor.strides()) << parameters[i].name;
        EXPECT_TRUE(gradients.views()[i].to(at::kDouble).equal(expected_gradient(parameters[i].tensor)))
            << parameters[i].name;
      }
    }
  }
}

TEST(LayoutTest, what_no_backward_adds_lands_on_the_same_elements) {
  const auto parameters = odd_parameters(at::kDouble);
  for (const bool reproducible : {false, true}) {
    FlatGradients gradients(parameters, {.type = at::kDouble, .reproducible = reproducible});
    for (int attempt = 0; attempt < 2; ++attempt) {
      gradients.begin_step();
      for (const NamedTensor& parameter : parameters)
        gradients.add(parameter.tensor, expected_gradient(parameter.tensor));
      gradients.complete_sum();
      if (reproducible) gradients.reproducible()->follow(gradients.reproducible()->largest());
    }
    gradients.finish_sum(1.0);
    for (std::size_t i = 0; i < parameters.size(); ++i)
      EXPECT_TRUE(gradients.views()[i].equal(expected_gradient(parameters[i].tensor))) << parameters[i].name;
  }
}

OptimizerConfiguration momentum() {
  OptimizerConfiguration c;
  c.kind = "sgd";
  c.momentum = 0.9;
  c.weight_decay = 0.0;
  return c;
}

TEST(LayoutTest, an_update_moves_every_element_by_its_own_gradient) {
  const auto parameters = odd_parameters(at::kDouble);
  std::vector<at::Tensor> before;
  for (const NamedTensor& parameter : parameters)
    before.push_back(parameter.tensor.detach().clone(at::MemoryFormat::Contiguous));
  FlatGradients gradients(parameters);
  Optimizer optimizer(momentum(), gradients);
  for (int step = 0; step < 2; ++step) {
    gradients.begin_step();
    loss_of(parameters).backward();
    optimizer.step(0.5, gradients.touched());
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor g = expected_gradient(before[i]);
    EXPECT_LE((parameters[i].tensor.detach() - (before[i] - 0.5 * g - 0.5 * 1.9 * g)).abs().max().item<double>(),
              1e-12);
    EXPECT_EQ(optimizer.state()[i].tensor.strides(), parameters[i].tensor.strides());
  }
}

TEST(LayoutTest, masters_of_short_parameters_lie_as_they_do) {
  const auto parameters = odd_parameters(at::kBFloat16);
  FlatGradients gradients(parameters, {.type = at::kFloat});
  Optimizer optimizer(momentum(), gradients);
  std::vector<at::Tensor> before;
  for (const NamedTensor& parameter : parameters) before.push_back(parameter.tensor.detach().to(at::kDouble));
  loss_of(parameters).backward();
  optimizer.step(0.5, gradients.touched());
  const auto state = optimizer.state();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor master = state[state.size() - parameters.size() + i].tensor;
    EXPECT_EQ(master.strides(), parameters[i].tensor.strides());
    EXPECT_LE((master.to(at::kDouble) - (before[i] - 0.5 * expected_gradient(before[i]))).abs().max().item<double>(),
              0.2)
        << "of up to 119";
  }
}

TEST(LayoutTest, an_optimizer_refuses_to_start_where_they_differ) {
  const auto parameters = odd_parameters(at::kFloat);
  FlatGradients gradients(parameters);
  at::Tensor(parameters[0].tensor).set_data(parameters[0].tensor.detach().clone(at::MemoryFormat::Contiguous));
  try {
    Optimizer optimizer(momentum(), gradients);
    FAIL();
  } catch (const std::logic_error& error) {
    EXPECT_NE(std::string(error.what()).find("conv"), std::string::npos) << error.what();
  }
}

// Named tensors, as a model has them.
class Given final : public Model {
 public:
  Given(std::vector<NamedTensor> parameters, std::vector<NamedTensor> buffers)
      : parameters_(std::move(parameters)), buffers_(std::move(buffers)) {}
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs, const ForwardContext& /*context*/) override {
    return inputs;
  }
  std::vector<NamedTensor> parameters() const override { return parameters_; }
  std::vector<NamedTensor> buffers() const override { return buffers_; }
  void set_phase(Phase /*phase*/) override {}
  void move_to(c10::Device /*device*/, at::ScalarType /*type*/, at::ScalarType /*batch_norm_type*/) override {}
  std::vector<std::string> batch_norm_layers() const override { return {}; }
  std::vector<std::string> running_statistics() const override { return {}; }

 private:
  std::vector<NamedTensor> parameters_, buffers_;
};

TEST(LayoutTest, gaps_are_closed_and_channels_last_stays) {
  const at::Tensor memory = at::arange(40, at::kFloat);
  const at::Tensor every_second = trained(memory.slice(0, 0, 20, 2));
  const at::Tensor columns = trained(memory.narrow(0, 20, 20).view({4, 5}).narrow(1, 1, 2));
  const at::Tensor last = trained(at::ones({2, 3, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast));
  const at::Tensor frozen = at::zeros({1}).expand({3});
  const Given model({{"every_second", every_second}, {"columns", columns}, {"last", last}, {"frozen", frozen}}, {});
  const at::Tensor expected = columns.detach().clone();
  give_dense_memory(model);
  EXPECT_TRUE(every_second.is_contiguous());
  EXPECT_TRUE(columns.is_contiguous());
  EXPECT_TRUE(columns.detach().equal(expected));
  EXPECT_TRUE(last.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_EQ(frozen.stride(0), 0) << "nobody updates it";
  const FlatGradients gradients(model.parameters());
  EXPECT_EQ(gradients.parameters().size(), 3U);
}

std::string refusal_of(const Given& model) {
  try {
    give_dense_memory(model);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(LayoutTest, shared_memory_is_refused_by_name) {
  const at::Tensor memory = at::randn({30});
  const auto whole = [&] { return trained(memory.narrow(0, 0, 20)); };
  EXPECT_NE(refusal_of({{{"wide", trained(at::zeros({1}).expand({4}))}}, {}}).find("wide is expanded"),
            std::string::npos);
  EXPECT_NE(refusal_of({{{"windows", trained(memory.unfold(0, 4, 2))}}, {}}).find("windows is expanded"),
            std::string::npos);
  EXPECT_NE(refusal_of({{{"a", whole()}, {"b", trained(memory.narrow(0, 19, 11))}}, {}}).find("share memory"),
            std::string::npos);
  EXPECT_NE(refusal_of({{{"a", whole()}}, {{"copy", memory.view({5, 6})}}}).find("copy share memory"),
            std::string::npos);
  EXPECT_NE(refusal_of({{{"a", whole()}}, {{"other", memory.view(at::kInt)}}}).find("share memory"), std::string::npos);
  const at::Tensor both = whole();
  EXPECT_NE(refusal_of({{{"a", both}}, {{"also", both}}}).find("also share memory"), std::string::npos);
  // Side by side, interleaved, or nothing that is trained.
  EXPECT_EQ(refusal_of({{{"a", whole()}, {"b", trained(memory.narrow(0, 20, 10))}}, {}}), "");
  EXPECT_EQ(refusal_of({{{"a", trained(memory.slice(0, 0, 30, 2))}, {"b", trained(memory.slice(0, 1, 30, 2))}}, {}}),
            "");
  EXPECT_EQ(refusal_of({{{"a", memory}}, {{"b", memory.view({5, 6})}}}), "");
}

TEST(LayoutTest, gaps_that_nobody_has_closed_are_an_error) {
  EXPECT_THROW(FlatGradients({{"a", trained(at::zeros({6}).slice(0, 0, 6, 2))}}), std::logic_error);
}

TEST(LayoutTest, what_is_kept_in_host_memory_lies_as_it_did) {
  SavedValues saved{SavedPlace::host, c10::Device(c10::kCPU)};
  const at::Tensor last = at::randn({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  saved.put(1, last);
  saved.put(2, last.narrow(1, 0, 2));
  saved.put(3, at::ones({1}).expand({4}));
  EXPECT_EQ(saved.get(1).strides(), last.strides());
  EXPECT_TRUE(saved.get(1).equal(last));
  EXPECT_TRUE(saved.get(2).equal(last.narrow(1, 0, 2)));
  EXPECT_TRUE(saved.get(3).equal(at::ones({4})));
}

}  // namespace
}  // namespace onebatch
