#include "trainer/optim/optimizer.hpp"

#include "comm/local_communicator.hpp"
#include "trainer/base/error.hpp"
#include "trainer/gradients/clipping.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/rand_like.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>

namespace onebatch {
namespace {

// One parameter in fp64 with gradient 0.5 at every step, followed by hand.
class OneParameter {
 public:
  explicit OneParameter(const OptimizerConfiguration& configuration)
      : parameters_({{"w", at::full({2}, 1.0, at::TensorOptions().dtype(at::kDouble)).set_requires_grad(true)}}),
        gradients_(parameters_),
        optimizer_(configuration, gradients_) {}

  double step(double lr, double gradient, double touched = 1.0) {
    gradients_.flat().fill_(gradient);
    optimizer_.step(lr, {touched});
    return parameters_[0].tensor.detach()[0].item<double>();
  }
  [[nodiscard]] std::vector<NamedTensor> state() const { return optimizer_.state(); }

 private:
  std::vector<NamedTensor> parameters_;
  FlatGradients gradients_;
  Optimizer optimizer_;
};

OptimizerConfiguration of(const std::string& kind, double weight_decay) {
  OptimizerConfiguration c;
  c.kind = kind;
  c.weight_decay = weight_decay;
  return c;
}

// Kingma and Ba 2015, algorithm 1; Loshchilov and Hutter 2019, algorithm 2.
double adam_by_hand(const OptimizerConfiguration& c, int steps, double lr, double gradient) {
  double w = 1.0, m = 0.0, v = 0.0;
  for (int t = 1; t <= steps; ++t) {
    const double g = gradient + (c.kind == "adam" ? c.weight_decay * w : 0.0);
    if (c.kind == "adamw") w -= lr * c.weight_decay * w;
    m = c.betas[0] * m + (1 - c.betas[0]) * g;
    v = c.betas[1] * v + (1 - c.betas[1]) * g * g;
    w -= lr * (m / (1 - std::pow(c.betas[0], t))) / (std::sqrt(v / (1 - std::pow(c.betas[1], t))) + c.eps);
  }
  return w;
}

at::Tensor average_of(const Optimizer& optimizer) {
  for (const auto& [name, tensor] : optimizer.state()) {
    if (name == "ema.w") return tensor;
  }
  return {};
}

// A parameter of some type, trained with plain SGD on gradients that change.
class Averaged {
 public:
  explicit Averaged(at::ScalarType type, at::ScalarType summed, double decay = 0.9)
      : parameters_({{"w", at::rand({5, 3}).to(type).set_requires_grad(true)}}),
        gradients_(parameters_, {.type = summed}),
        optimizer_(configuration(decay), gradients_) {}

  void step(double touched = 1.0) {
    gradients_.flat().copy_(at::rand_like(gradients_.flat()));
    optimizer_.step(0.1, {touched});
  }
  [[nodiscard]] at::Tensor weights() const { return parameters_[0].tensor.detach(); }
  [[nodiscard]] at::Tensor master() const {
    for (const auto& [name, tensor] : optimizer_.state()) {
      if (name == "master.w") return tensor;
    }
    return weights();
  }
  Optimizer& optimizer() { return optimizer_; }

 private:
  static OptimizerConfiguration configuration(double decay) {
    OptimizerConfiguration c;
    c.kind = "sgd";
    c.ema_decay = decay;
    return c;
  }

  std::vector<NamedTensor> parameters_;
  FlatGradients gradients_;
  Optimizer optimizer_;
};

struct Types {
  at::ScalarType parameters, summed, average;
  double tolerance;
};
const std::vector<Types> k_types = {{at::kDouble, at::kDouble, at::kDouble, 1e-15},
                                    {at::kFloat, at::kFloat, at::kFloat, 1e-6},
                                    {at::kBFloat16, at::kFloat, at::kFloat, 1e-6},
                                    {at::kBFloat16, at::kBFloat16, at::kFloat, 1e-6},
                                    {at::kHalf, at::kFloat, at::kFloat, 1e-6}};

TEST(OptimizerTest, the_average_follows_the_updates_by_its_formula) {
  for (const Types& types : k_types) {
    Averaged one(types.parameters, types.summed);
    at::Tensor expected = one.master().to(at::kDouble).clone();
    for (int step = 0; step < 7; ++step) {
      one.step(step == 3 ? 0.0 : 1.0);  // a parameter that was not touched counts as it is
      expected = expected * 0.9 + one.master().to(at::kDouble) * (1.0 - 0.9);
    }
    const at::Tensor average = average_of(one.optimizer());
    EXPECT_EQ(average.scalar_type(), types.average);
    EXPECT_LE((average.to(at::kDouble) - expected).abs().max().item<double>(), types.tolerance);
    EXPECT_GT((average.to(at::kDouble) - one.master().to(at::kDouble)).abs().max().item<double>(), 0.01);
  }
}

TEST(OptimizerTest, while_the_average_is_shown_the_model_has_it_and_then_its_own_bits_again) {
  for (const Types& types : k_types) {
    Averaged one(types.parameters, types.summed);
    for (int step = 0; step < 3; ++step) one.step();
    const at::Tensor weights = one.weights().clone();
    const at::Tensor master = one.master().clone();
    const at::Tensor average = average_of(one.optimizer()).clone();
    {
      const AveragedWeights shown(one.optimizer());
      EXPECT_TRUE(one.weights().equal(average.to(types.parameters)));
      EXPECT_FALSE(one.weights().equal(weights));
    }
    EXPECT_TRUE(one.weights().equal(weights));
    EXPECT_TRUE(one.master().equal(master));
    EXPECT_TRUE(average_of(one.optimizer()).equal(average));
  }
}

TEST(OptimizerTest, no_average_is_kept_unless_it_is_asked_for) {
  Averaged one(at::kFloat, at::kFloat, 0.0);
  one.step();
  EXPECT_EQ(one.optimizer().average(), nullptr);
  EXPECT_FALSE(average_of(one.optimizer()).defined());
  const at::Tensor weights = one.weights().clone();
  const AveragedWeights shown(one.optimizer());
  EXPECT_TRUE(one.weights().equal(weights));
  OptimizerConfiguration c = of("adam", 0.0);
  EXPECT_EQ(states_per_parameter(c), 2);
  c.ema_decay = 0.5;
  EXPECT_EQ(states_per_parameter(c), 3) << "what is said of memory counts it";
}

TEST(OptimizerTest, adam_and_adamw_follow_their_papers) {
  for (const char* kind : {"adam", "adamw"}) {
    const auto c = of(kind, 0.1);
    OneParameter one(c);
    for (int t = 1; t <= 5; ++t) EXPECT_NEAR(one.step(0.01, 0.5), adam_by_hand(c, t, 0.01, 0.5), 1e-12) << t;
    EXPECT_EQ(one.state().size(), 3U);
  }
}

TEST(OptimizerTest, sgd_with_momentum_decay_and_nesterov_by_hand) {
  for (const bool nesterov : {false, true}) {
    auto c = of("sgd", 0.1);
    c.momentum = 0.9;
    c.nesterov = nesterov;
    OneParameter one(c);
    double w = 1.0, buffer = 0.0;
    for (int t = 1; t <= 5; ++t) {
      const double g = 0.5 + 0.1 * w;
      buffer = 0.9 * buffer + g;
      w -= 0.01 * (nesterov ? g + 0.9 * buffer : buffer);
      EXPECT_NEAR(one.step(0.01, 0.5), w, 1e-14) << t;
    }
  }
}

TEST(OptimizerTest, plain_sgd_has_no_state) {
  OneParameter one(of("sgd", 0.0));
  EXPECT_NEAR(one.step(0.1, 2.0), 0.8, 1e-15);
  EXPECT_TRUE(one.state().empty());
}

TEST(OptimizerTest, what_was_not_touched_is_not_even_decayed) {
  for (const char* kind : {"adamw", "adam", "sgd"}) {
    OneParameter one(of(kind, 0.5));
    EXPECT_DOUBLE_EQ(one.step(0.1, 0.0, 0.0), 1.0);
    EXPECT_LT(one.step(0.1, 0.0, 1.0), 1.0) << "a zero gradient that was touched is decayed";
  }
}

double read_norm(const at::Tensor& gradient) {
  return checked_norm(gradient_norm(gradient).item<double>(), gradient);
}

TEST(ClippingTest, by_norm_scales_and_by_value_cuts) {
  at::Tensor gradient = at::tensor({3.0, -4.0, 0.0}, at::kDouble);
  EXPECT_DOUBLE_EQ(read_norm(gradient), 5.0);
  clip_gradient(gradient, 5.0, {});
  EXPECT_TRUE(gradient.equal(at::tensor({3.0, -4.0, 0.0}, at::kDouble)));
  clip_gradient(gradient, 5.0, {{}, 3.5});
  EXPECT_TRUE(gradient.equal(at::tensor({3.0, -3.5, 0.0}, at::kDouble)));
  const double norm = read_norm(gradient);
  clip_gradient(gradient, norm, {1.0, {}});
  EXPECT_NEAR(gradient[0].item<double>(), 3.0 / (norm + 1e-6), 1e-15);
}

TEST(ClippingTest, a_norm_is_finite_where_every_element_is) {
  EXPECT_NEAR(read_norm(at::full({4}, 1e30, at::kFloat)), 2e30, 1e24);
  EXPECT_FALSE(std::isfinite(read_norm(at::tensor({1.0, NAN}, at::kFloat))));
}

// A float32 sum of all squares, one after the other, is 6e-4 off at the size of a ResNet-18.
TEST(ClippingTest, the_norm_of_many_small_elements_is_as_exact_as_that_of_few) {
  const at::Tensor gradient = at::rand({(1 << 22) + 77}).pow(4);
  const double truth = gradient.to(at::kDouble).square().sum().sqrt().item<double>();
  EXPECT_NEAR(read_norm(gradient) / truth, 1.0, 1e-7);
}

TEST(OptimizerTest, a_group_has_its_own_rate_and_decay) {
  const auto parameter = [](double value) { return at::full({1}, value, at::kDouble).requires_grad_(true); };
  const at::Tensor weight = parameter(1.0);
  const at::Tensor bias = parameter(1.0);
  const at::Tensor norm = parameter(1.0);
  FlatGradients gradients({{"layer0.weight", weight}, {"layer0.bias", bias}, {"norm.weight", norm}});
  OptimizerConfiguration configuration = of("sgd", 0.5);
  configuration.lr = 0.1;
  configuration.groups = {{"*.bias", {}, 0.0}, {"norm*", 0.02, {}}};
  Optimizer optimizer(configuration, gradients);
  gradients.flat().fill_(2.0);
  optimizer.step(0.05, {1.0, 1.0, 1.0});  // half of the configuration's rate
  EXPECT_DOUBLE_EQ(weight.item<double>(), 1.0 - 0.05 * (2.0 + 0.5));
  EXPECT_DOUBLE_EQ(bias.item<double>(), 1.0 - 0.05 * 2.0);
  EXPECT_DOUBLE_EQ(norm.item<double>(), 1.0 - 0.01 * (2.0 + 0.5));
  configuration.groups = {{"*.bais", 0.1, {}}};
  EXPECT_THROW(Optimizer(configuration, gradients), UserError);
}

TEST(OptimizerTest, a_pattern_of_many_stars_takes_no_time) {
  const std::string name(60, 'a');
  FlatGradients gradients(std::vector<NamedTensor>{{name, at::full({1}, 1.0).requires_grad_(true)}});
  OptimizerConfiguration configuration = of("sgd", 0.0);
  std::string stars;
  for (int i = 0; i < 20; ++i) stars += "*a";
  configuration.groups = {{stars, 0.1, {}}};
  EXPECT_NO_THROW(Optimizer(configuration, gradients));
  configuration.groups = {{stars + "b", 0.1, {}}};
  EXPECT_THROW(Optimizer(configuration, gradients), UserError) << "there are 4e15 ways in which it does not match";
}

TEST(OptimizerTest, a_name_that_looks_like_a_pattern_is_itself) {
  FlatGradients gradients(std::vector<NamedTensor>{{"a[0].weight", at::full({1}, 1.0).requires_grad_(true)}});
  OptimizerConfiguration configuration = of("sgd", 0.0);
  configuration.groups = {{"a[0].weight", 0.1, {}}};
  EXPECT_NO_THROW(Optimizer(configuration, gradients));
}

TEST(OptimizerTest, short_parameters_follow_masters) {
  const at::Tensor weight = at::full({3}, 1.0, at::kHalf).requires_grad_(true);
  FlatGradients gradients({{"w", weight}}, {.type = at::kFloat});
  Optimizer optimizer(of("sgd", 0.0), gradients);
  for (int i = 0; i < 100; ++i) {
    gradients.begin_step();
    // What the half would lose of each step, the sum and the master keep.
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch) weight.mul(1e-3F).sum().backward();
    EXPECT_FALSE(weight.grad().defined());
    EXPECT_EQ(gradients.flat().scalar_type(), at::kFloat);
    optimizer.step(0.1, gradients.touched());
  }
  EXPECT_NEAR(weight[0].item<float>(), 1.0 - 100 * 0.1 * 2e-3, 1e-3);
  ASSERT_EQ(optimizer.state().back().name, "master.w");
  EXPECT_NEAR(optimizer.state().back().tensor[0].item<float>(), 0.98, 1e-5);
}

}  // namespace
}  // namespace onebatch
