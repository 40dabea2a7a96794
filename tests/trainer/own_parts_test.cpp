// A session whose module, data, loss and optimizer are all a program's own, against LibTorch alone in one batch.
#include "trainer/kinds.hpp"
#include "trainer/trainer.hpp"

#include "comm/ranks_main.hpp"
#include "tests/unit/scratch_folder.hpp"
#include "trainer/io/tensor_file.hpp"

#include <ATen/ops/mse_loss.h>
#include <gtest/gtest.h>
#include <torch/data/datasets/base.h>
#include <torch/nn/modules.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

namespace onebatch {
namespace {

using onebatch::testing::world;
namespace nn = torch::nn;

constexpr std::int64_t k_size = 23;
constexpr std::int64_t k_steps = 6;
constexpr std::uint64_t k_seed = 5;
constexpr double k_lr = 0.05;

class Waves : public torch::data::datasets::Dataset<Waves> {
 public:
  torch::data::Example<> get(std::size_t index) override {
    const double at = static_cast<double>(index);
    return {torch::arange(48, torch::kDouble).mul(0.3 + 0.05 * at).sin().view({3, 4, 4}),
            torch::tensor({at / 20.0, std::sin(at)}, torch::kDouble)};
  }
  std::optional<std::size_t> size() const override { return k_size; }
};

nn::Sequential make_net() {
  return nn::Sequential(nn::Conv2d(3, 4, 3), nn::BatchNorm2d(4), nn::Tanh(), nn::Flatten(), nn::Linear(16, 2));
}

nn::Sequential make_flat_net() {
  return nn::Sequential(nn::Flatten(), nn::Linear(48, 4), nn::Tanh(), nn::Linear(4, 2));
}

at::Tensor fourth_powers(const at::Tensor& outputs, const at::Tensor& targets) {
  return outputs.sub(targets).pow(4).sum();
}

// Outputs are a mean and a logarithm of a variance for each target: not of the targets' shape.
at::Tensor gaussian(const at::Tensor& outputs, const at::Tensor& targets) {
  const at::Tensor logarithm = outputs.narrow(1, 2, 2);
  return outputs.narrow(1, 0, 2).sub(targets).pow(2).mul(logarithm.neg().exp()).add(logarithm).sum();
}

// A network with its loss: both numbers that it returns have the shape [1].
struct WithLoss : nn::Module {
  explicit WithLoss(const nn::Sequential& its_net) { net = register_module("net", its_net); }
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& inputs, const at::Tensor& targets) {
    return {fourth_powers(net->forward(inputs), targets).reshape({1}),
            torch::ones_like(targets.select(1, 0)).sum(0, /*keepdim=*/true)};
  }
  nn::Sequential net{nullptr};
};

// Three classes.
Batch thirds() {
  const auto whole = torch::arange(k_size);
  return {{torch::arange(k_size * 48, torch::kDouble).mul(0.3).sin().view({k_size, 3, 4, 4})}, whole.remainder(3), {}};
}

void register_own_parts() {
  static bool done = false;
  if (std::exchange(done, true)) return;
  register_kind(samples_kind("waves", [](const OpenRequest&) { return Waves(); }));
  register_kind(samples_kind("thirds", [](const OpenRequest&) { return Samples(thirds()); }));
  register_kind(module_kind("net", [](const ModelRequest&) { return make_net(); }));
  register_kind(
      module_kind("net with loss", [](const ModelRequest&) { return std::make_shared<WithLoss>(make_net()); }));
  register_kind(module_kind("flat net with loss",
                            [](const ModelRequest&) { return std::make_shared<WithLoss>(make_flat_net()); }));
  register_kind(module_kind("five outputs",
                            [](const ModelRequest&) { return nn::Sequential(nn::Flatten(), nn::Linear(48, 5)); }));
  register_kind(module_kind("many outputs",
                            [](const ModelRequest&) { return nn::Sequential(nn::Flatten(), nn::Linear(48, 1100)); }));
  register_kind(loss_kind("fourth", Targets::numbers,
                          [](const LossTensors& of) { return fourth_powers(of.outputs, of.targets); }));
  register_kind(
      module_kind("wide", [](const ModelRequest&) { return nn::Sequential(nn::Flatten(), nn::Linear(48, 4)); }));
  register_kind(
      loss_kind("gaussian", Targets::numbers, [](const LossTensors& of) { return gaussian(of.outputs, of.targets); }));
  register_kind(optimizer_kind("heavy", {"velocity"}, [](UpdatedParameter& one, const UpdateRates& rates) {
    one.parameter.sub_(one.state[0].mul_(0.9).add_(one.gradient), rates.lr);
  }));
  register_kind(optimizer_kind("counting", {"exp_avg", "step"}, [](UpdatedParameter& one, const UpdateRates& rates) {
    one.state[1].add_(1.0);
    one.parameter.sub_(one.state[0].mul_(0.9).add_(one.gradient), rates.lr);
  }));
}

Configuration own_parts() {
  Configuration c;
  c.run.seed = k_seed;
  c.run.max_steps = k_steps;
  c.run.device = DeviceChoice::cpu;
  c.batch.global_batch_size = k_size;  // so that the order of samples is no matter
  c.batch.micro_batch_size = {4};
  c.data.train.kind = "waves";
  c.model.kind = "net";
  c.loss.kind = "fourth";
  c.optimizer.kind = "heavy";
  c.optimizer.lr = k_lr;
  c.precision.compute = c.precision.parameters = Precision::float64;
  c.batch_norm.mode = BatchNormMode::exact;
  return c;
}

struct Trained {
  nn::Sequential net{nullptr};
  std::vector<double> losses;
};

Trained train_with_libtorch_alone(nn::Sequential (*make)() = make_net) {
  at::manual_seed(k_seed);
  Trained plain{make(), {}};
  plain.net->to(torch::kDouble);
  const nn::Sequential& net = plain.net;
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> targets;
  for (std::size_t i = 0; i < k_size; ++i) {
    const auto example = Waves().get(i);
    inputs.push_back(example.data);
    targets.push_back(example.target);
  }
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(k_lr).momentum(0.9));
  for (std::int64_t step = 0; step < k_steps; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss =
        fourth_powers(plain.net->forward(torch::stack(inputs)), torch::stack(targets)).div(double(k_size));
    loss.backward();
    optimizer.step();
    plain.losses.push_back(loss.item<double>());
  }
  return plain;
}

std::vector<NamedTensor> state_of_module(const nn::Module& module) {
  std::vector<NamedTensor> all = named_tensors(module.named_parameters());
  for (NamedTensor& one : named_tensors(module.named_buffers())) all.push_back(std::move(one));
  return all;
}

TEST(OwnPartsTest, an_optimizers_state_may_have_names_of_adams) {
  register_own_parts();
  Configuration c = own_parts();
  c.optimizer.kind = "counting";
  const VerifyReport report = Session(c, world(), {}, {}).verify({});
  EXPECT_TRUE(report.pass) << report.reason;
}

TEST(OwnPartsTest, are_trained_as_libtorch_alone_trains_them_in_one_batch) {
  const testing::ScratchFolder folder;
  register_own_parts();
  std::vector<double> losses;
  {
    Session session(own_parts(), world(),
                    {on<event::StepDone>([&](const event::StepDone& done) { losses.push_back(done.record.loss); })},
                    {.run_dir = folder.path()});
    session.train();
  }
  if (world().rank() != 0) return;
  const Trained plain = train_with_libtorch_alone();
  ASSERT_EQ(losses.size(), plain.losses.size());
  for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], plain.losses[i], 1e-12 * plain.losses[i]);
  EXPECT_LT(losses.back(), 0.8 * losses.front());
  const nn::Sequential ours = make_net();
  ours.ptr()->to(torch::kDouble);
  load_tensors(folder / "checkpoints/step-6/model.safetensors", state_of_module(*ours), Extra::refused);
  const auto expected = state_of_module(*plain.net);
  const auto found = state_of_module(*ours);
  ASSERT_EQ(found.size(), 9U);  // two of each of three layers, three statistics
  for (std::size_t i = 0; i < found.size(); ++i) {
    const at::Tensor wanted = expected[i].tensor.to(at::kDouble);
    EXPECT_LE(found[i].tensor.to(at::kDouble).sub(wanted).norm().item<double>(), 1e-12 * wanted.norm().item<double>())
        << found[i].name;
  }
}

void expect_the_losses_of_libtorch(const char* model, nn::Sequential (*make)()) {
  const testing::ScratchFolder folder;
  Configuration c = own_parts();
  c.model.kind = model;
  c.loss.kind = "model";
  std::vector<double> losses;
  Session session(c, world(),
                  {on<event::StepDone>([&](const event::StepDone& done) { losses.push_back(done.record.loss); })},
                  {.run_dir = folder.path()});
  session.train();
  if (world().rank() != 0) return;
  const std::vector<double> expected = train_with_libtorch_alone(make).losses;
  ASSERT_EQ(losses.size(), expected.size());
  for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-12 * expected[i]) << model;
}

TEST(OwnPartsTest, a_models_own_loss_and_weight_may_have_the_shape_of_one_element) {
  register_own_parts();
  expect_the_losses_of_libtorch("net with loss", make_net);            // in rounds that share BatchNorm's statistics
  expect_the_losses_of_libtorch("flat net with loss", make_flat_net);  // one micro-batch after the other
}

// On rank 0; empty on others.
EvaluationResult validated(const Configuration& configuration) {
  const testing::ScratchFolder folder;
  EvaluationResult result;
  Session session(configuration, world(),
                  {on<event::Validated>([&](const event::Validated& one) { result = one.result; })},
                  {.run_dir = folder.path()});
  session.train();
  return result;
}

Configuration with_validation(const char* model, const char* loss) {
  register_own_parts();
  Configuration c = own_parts();
  c.model.kind = model;
  c.loss.kind = loss;
  c.optimizer.lr = 1e-4;
  c.run.max_steps = 1;
  c.data.validation = c.data.train;
  return c;
}

TEST(OwnPartsTest, a_loss_of_numbers_has_their_metrics) {
  const EvaluationResult result = validated(with_validation("net", "fourth"));
  if (world().rank() != 0) return;
  ASSERT_EQ(result.metrics.size(), 2U);
  EXPECT_EQ(result.metrics[0].name, "mean_absolute_error");
  EXPECT_EQ(result.metrics[1].name, "r2");
  EXPECT_TRUE(std::isfinite(result.metrics[0].value) && result.metrics[1].value < 1.0);
}

TEST(OwnPartsTest, a_loss_of_other_outputs_has_no_metrics_unless_they_are_asked_for) {
  Configuration c = with_validation("wide", "gaussian");
  const EvaluationResult result = validated(c);
  EXPECT_EQ(result.samples, world().rank() == 0 ? k_size : 0);
  EXPECT_TRUE(result.metrics.empty());
  c.run.metrics = {"r2"};
  EXPECT_THROW(validated(c), AgreedError);  // on every rank
}

Configuration of_thirds(const char* model, const char* metric) {
  Configuration c = with_validation(model, "cross_entropy");
  c.data.train.kind = "thirds";
  c.data.validation = c.data.train;
  c.run.metrics = {metric};
  return c;
}

// How many steps were done before a run was refused, on rank 0.
std::size_t steps_before_refusal(const Configuration& configuration) {
  const testing::ScratchFolder folder;
  std::size_t steps = 0;
  Session session(configuration, world(), {on<event::StepDone>([&](const event::StepDone&) { ++steps; })},
                  {.run_dir = folder.path()});
  EXPECT_THROW(session.train(), AgreedError);  // on every rank
  return steps;
}

TEST(OwnPartsTest, top_k_is_of_the_models_outputs_which_may_be_more_than_there_are_classes) {
  const EvaluationResult result = validated(of_thirds("five outputs", "top_4"));
  if (world().rank() == 0) {
    ASSERT_EQ(result.metrics.size(), 1U);
    EXPECT_EQ(result.metrics[0].name, "top_4");
    EXPECT_TRUE(result.metrics[0].value > 0.0 && result.metrics[0].value <= 1.0) << result.metrics[0].value;
  }
  EXPECT_EQ(steps_before_refusal(of_thirds("five outputs", "top_5")), 0U);
}

TEST(OwnPartsTest, lists_of_too_many_outputs_are_refused_before_the_first_step) {
  EXPECT_EQ(steps_before_refusal(of_thirds("many outputs", "f1_per_class")), 0U);
  EXPECT_EQ(steps_before_refusal(of_thirds("many outputs", "confusion_matrix")), 0U);
}

TEST(OwnPartsTest, a_metric_of_other_targets_is_refused_before_anything_is_trained) {
  Configuration c = with_validation("wide", "gaussian");
  c.run.metrics = {"f1_macro"};
  EXPECT_THROW(validated(c), AgreedError);
}

}  // namespace
}  // namespace onebatch
