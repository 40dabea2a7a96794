// BatchNorm's statistics over micro-batches and ranks, against LibTorch's ordinary backward of all samples in one
// batch.
#include "trainer/step/graph_step.hpp"

#include "comm/local_communicator.hpp"
#include "comm/ranks_main.hpp"
#include "trainer/device/memory_budget.hpp"
#include "trainer/models/trainable_module.hpp"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <map>
#include <numeric>
#include <set>

namespace onebatch {
namespace {

using onebatch::testing::world;
namespace nn = torch::nn;

constexpr std::int64_t k_channels = 6;
constexpr std::int64_t k_step = 4;

// One convolution used twice, a BatchNorm used twice, in-place operations, all kinds of BatchNorm and of dropout, and a
// head that the loss does not take.
class OddModule final : public TrainableModule {
 public:
  OddModule() {
    stem_ = register_module("stem", nn::Conv2d(nn::Conv2dOptions(3, k_channels, 3).padding(1).bias(false)));
    conv_ = register_module("conv", nn::Conv2d(nn::Conv2dOptions(k_channels, k_channels, 3).padding(1)));
    first_ = register_module("first", nn::BatchNorm2d(k_channels));
    twice_ = register_module("twice", nn::BatchNorm2d(nn::BatchNorm2dOptions(k_channels).momentum(0.3)));
    bare_ = register_module("bare", nn::BatchNorm2d(nn::BatchNorm2dOptions(k_channels).affine(false)));
    forgetful_ =
        register_module("forgetful", nn::BatchNorm2d(nn::BatchNorm2dOptions(k_channels).track_running_stats(false)));
    counting_ = register_module("counting", nn::BatchNorm2d(nn::BatchNorm2dOptions(k_channels).momentum(std::nullopt)));
    frozen_ = register_module("frozen", nn::BatchNorm2d(k_channels));
    volume_ = register_module("volume", nn::BatchNorm3d(2));
    aside_ = register_module("aside", nn::Sequential(nn::Conv2d(k_channels, 2, 3), nn::BatchNorm2d(2), nn::ReLU()));
    flat_ = register_module("flat", nn::BatchNorm1d(nn::BatchNorm1dOptions(k_channels).eps(1e-3)));
    head_ = register_module("head", nn::Linear(k_channels, 10));
  }

  at::Tensor forward(const at::Tensor& inputs, const ForwardContext& /*context*/) override {
    frozen_->eval();
    at::Tensor x = first_->forward(stem_->forward(inputs)).relu_();
    at::Tensor y = twice_->forward(conv_->forward(x));
    aside_->forward(y);
    y = at::dropout(y, 0.2, is_training());
    y = twice_->forward(conv_->forward(y));
    y += x;
    y.relu_();
    {
      const at::NoGradGuard no_grad;
      scale_ = y.abs().amax({1, 2, 3}, true).add(1.0);
    }
    y = forgetful_->forward(bare_->forward(y / scale_));
    at::feature_dropout_(y, 0.3, is_training());
    const auto halves = y.chunk(2, 1);
    y = counting_->forward(counting_->forward(at::cat({halves[1].sigmoid(), halves[0]}, 1)).tanh());
    y = volume_->forward(y.view({y.size(0), 2, k_channels / 2, y.size(2), y.size(3)})).flatten(1, 2);
    y = frozen_->forward(y);
    y = flat_->forward(at::alpha_dropout(y.mean({2, 3}), 0.1, is_training()));
    return head_->forward(y);
  }

 private:
  nn::Conv2d stem_{nullptr}, conv_{nullptr};
  nn::BatchNorm2d first_{nullptr}, twice_{nullptr}, bare_{nullptr}, forgetful_{nullptr}, counting_{nullptr},
      frozen_{nullptr};
  nn::BatchNorm3d volume_{nullptr};
  nn::BatchNorm1d flat_{nullptr};
  nn::Sequential aside_{nullptr};
  nn::Linear head_{nullptr};
  at::Tensor scale_;
};

// A BatchNorm before and after something that a test is about.
class AroundModule final : public TrainableModule {
 public:
  using Middle = std::function<at::Tensor(const at::Tensor&)>;
  explicit AroundModule(Middle middle) : middle_(std::move(middle)) {
    before_ = register_module("before", nn::BatchNorm2d(3));
    after_ = register_module("after", nn::BatchNorm2d(3));
    head_ = register_module("head", nn::Linear(3, 10));
  }
  at::Tensor forward(const at::Tensor& inputs, const ForwardContext& /*context*/) override {
    return head_->forward(after_->forward(middle_(before_->forward(inputs))).mean({2, 3}));
  }

 private:
  Middle middle_;
  nn::BatchNorm2d before_{nullptr}, after_{nullptr};
  nn::Linear head_{nullptr};
};

// Much that is made of parameters alone, so that where it is cut for its memory follows the micro-batch's size.
class WeightedModule final : public TrainableModule {
 public:
  WeightedModule() {
    mix_ = register_parameter("mix", at::rand({600}, at::kDouble));
    head_ = register_module("head", nn::Linear(3, 10));
  }
  at::Tensor forward(const at::Tensor& inputs, const ForwardContext& /*context*/) override {
    at::Tensor weight = mix_;
    for (int i = 0; i < 4; ++i) weight = weight.sin();
    at::Tensor x = inputs;
    for (int i = 0; i < 4; ++i) x = x.tanh().mul(weight.mean());
    return head_->forward(x.mean({2, 3}));
  }

 private:
  at::Tensor mix_;
  nn::Linear head_{nullptr};
};

Configuration configuration_of(BatchNormMode mode, Precision precision) {
  Configuration c;
  c.data.train.kind = "synthetic";
  c.data.train.shape = {3, 8, 8};
  c.data.train.size = 300;
  c.batch.global_batch_size = 100;
  c.optimizer.kind = "sgd";
  c.batch_norm.mode = mode;
  c.loss.class_weights = {1, 2, 1, 0.5, 1, 1, 3, 1, 1, 1};
  c.precision.parameters = c.precision.compute = precision;
  return c;
}

AccumulationOptions sharing_with(comm::Communicator& ranks) {
  AccumulationOptions options;
  options.ranks = &ranks;
  return options;
}

template <typename Module = OddModule, typename... Arguments>
class Trainee {
 public:
  explicit Trainee(BatchNormMode mode, Precision precision = Precision::float64, Arguments... arguments)
      : configuration_(configuration_of(mode, precision)),
        data(open_dataset(configuration_.data.train, Split::train, 1)) {
    DeviceRequest request;
    request.simulate.assign(static_cast<std::size_t>(world().control().size()), SimulatedDevice{});
    request.rank = world().control().rank();
    device_ = bind_device(request);
    at::manual_seed(3);
    auto model = wrap_module(std::make_shared<Module>(arguments...));
    model->move_to(c10::Device(c10::kCPU), scalar_type(precision), scalar_type(precision));
    replica = std::make_unique<Replica>(configuration_, *data, *device_, std::move(model), nullptr);
    runner.emplace(choose_runner(configuration_, *replica));
    replica->gradients.begin_step();
  }

  LocalSums accumulate(std::span<const std::int64_t> samples, const std::vector<MicroBatchRun>& runs,
                       comm::Communicator& ranks) {
    return accumulate_gradient(*runner, *data, samples, runs, k_step, sharing_with(ranks));
  }

  // All samples in one ordinary batch, on this rank alone.
  double one_batch(std::span<const std::int64_t> samples) {
    const Batch batch = data->gather(samples, replica->type);
    const at::Tensor loss =
        replica->loss.sum(replica->model->forward(batch.inputs[0], {replica->seed, k_step, samples}), batch.targets);
    loss.backward();
    return loss.item<double>();
  }

 private:
  Configuration configuration_;
  std::unique_ptr<ComputeDevice> device_;

 public:
  std::unique_ptr<Dataset> data;
  std::unique_ptr<Replica> replica;
  std::optional<MicroBatchRunner> runner;
};

struct Share {
  std::vector<std::int64_t> samples;
  std::vector<MicroBatchRun> runs;
};

// Sizes by rank and micro-batch, zeros in lock-step; the samples follow one another over the ranks.
using Sizes = std::vector<std::vector<std::int64_t>>;

std::int64_t sum_of(const std::vector<std::int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
}

Share share_of(const Sizes& sizes, std::size_t rank) {
  std::int64_t first = 7;
  for (std::size_t r = 0; r < rank; ++r) first += sum_of(sizes[r]);
  Share share;
  share.samples.resize(static_cast<std::size_t>(sum_of(sizes[rank])));
  std::iota(share.samples.begin(), share.samples.end(), first);
  for (const std::int64_t size : sizes[rank]) share.runs.push_back({size, 1});
  return share;
}

Sizes first_ranks(Sizes sizes) {
  sizes.resize(static_cast<std::size_t>(world().control().size()));
  return sizes;
}

at::Tensor summed_over_ranks(const at::Tensor& flat) {
  const at::Tensor sum = flat.detach().to(at::kDouble).clone();
  world().control().all_reduce(sum.mutable_data_ptr(), static_cast<std::size_t>(sum.numel()), comm::ScalarType::float64,
                               comm::ReduceOp::sum);
  return sum;
}

double relative_l2(const at::Tensor& ours, const at::Tensor& reference) {
  return (ours - reference).norm().item<double>() / reference.norm().item<double>();
}

double worst_buffer(const Replica& ours, const Replica& reference) {
  double worst = 0.0;
  const auto expected = reference.model->buffers();
  const auto buffers = ours.model->buffers();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    // The mean of what a BatchNorm has just centred is nothing but rounding: activations are of size 1.
    const at::Tensor truth = expected[i].tensor.to(at::kDouble);
    worst = std::max(worst, (buffers[i].tensor.to(at::kDouble) - truth).norm().item<double>() /
                                std::max(0.1, truth.norm().item<double>()));
  }
  return worst;
}

std::vector<std::int64_t> all_samples(const Sizes& sizes) {
  std::vector<std::int64_t> samples;
  for (std::size_t r = 0; r < sizes.size(); ++r) {
    const auto part = share_of(sizes, r).samples;
    samples.insert(samples.end(), part.begin(), part.end());
  }
  return samples;
}

void expect_exact(const Sizes& given) {
  const Sizes sizes = first_ranks(given);
  Trainee ours(BatchNormMode::exact);
  Trainee reference(BatchNormMode::local);
  const Share share = share_of(sizes, static_cast<std::size_t>(world().control().rank()));
  for (int repeat = 0; repeat < 2; ++repeat) {  // the second finds what the first has left
    ours.accumulate(share.samples, share.runs, world().control());
    reference.one_batch(all_samples(sizes));
  }
  EXPECT_LE(relative_l2(summed_over_ranks(ours.replica->gradients.flat()), reference.replica->gradients.flat()), 1e-13);
  EXPECT_LE(worst_buffer(*ours.replica, *reference.replica), 1e-12);
}

TEST(GraphStepTest, exact_is_one_large_batch) {
  expect_exact({{7, 3, 9, 2}, {4, 4}, {11}, {2, 6, 5}});
}

TEST(GraphStepTest, exact_with_a_rank_without_samples) {
  expect_exact({{5, 8}, {}, {3, 2, 4}, {}});
}

TEST(GraphStepTest, exact_in_float32_errs_as_one_large_batch_does) {
  const Sizes sizes = first_ranks({{7, 9, 16}, {8, 8}, {12, 5}, {20}});
  Trainee ours(BatchNormMode::exact, Precision::float32);
  Trainee one(BatchNormMode::local, Precision::float32);
  Trainee truth(BatchNormMode::local, Precision::float64);
  const Share share = share_of(sizes, static_cast<std::size_t>(world().control().rank()));
  ours.accumulate(share.samples, share.runs, world().control());
  one.one_batch(all_samples(sizes));
  truth.one_batch(all_samples(sizes));
  const at::Tensor reference = truth.replica->gradients.flat();
  // The flat buffers are padded alike only where elements are as large: compare by parameter.
  double ours_error = 0.0, one_error = 0.0;
  const at::Tensor sum = summed_over_ranks(ours.replica->gradients.flat());
  for (std::size_t i = 0; i < truth.replica->gradients.views().size(); ++i) {
    const Bucket at_f32 = ours.replica->gradients.extents()[i];
    const at::Tensor expected = truth.replica->gradients.views()[i].detach().flatten();
    ours_error += (sum.narrow(0, at_f32.begin, at_f32.count) - expected).square().sum().item<double>();
    one_error +=
        (one.replica->gradients.views()[i].detach().flatten().to(at::kDouble) - expected).square().sum().item<double>();
  }
  EXPECT_LE(std::sqrt(ours_error), 2.0 * std::sqrt(one_error));
}

TEST(GraphStepTest, local_batch_norm_is_far_from_it) {
  Trainee ours(BatchNormMode::local);
  Trainee reference(BatchNormMode::local);
  const Share share = share_of({{7, 3, 9, 2}}, 0);
  comm::LocalCommunicator alone;
  ours.accumulate(share.samples, share.runs, alone);
  reference.one_batch(share.samples);
  EXPECT_GT(relative_l2(ours.replica->gradients.flat(), reference.replica->gradients.flat()), 0.1);
}

// As a rank rehearses its share before the others take part.
TEST(GraphStepTest, synchronised_alone_passes_over_rounds_without_samples) {
  Trainee ours(BatchNormMode::sync);
  Trainee reference(BatchNormMode::sync);
  comm::LocalCommunicator alone;
  const Share share = share_of({{4, 0, 3, 0}}, 0);
  ours.accumulate(share.samples, share.runs, alone);
  reference.accumulate(share.samples, {{4, 1}, {3, 1}}, alone);
  EXPECT_TRUE(ours.replica->gradients.flat().equal(reference.replica->gradients.flat()));
}

TEST(GraphStepTest, synchronised_is_one_batch_of_all_ranks_in_each_round) {
  const Sizes sizes = first_ranks({{4, 6, 3}, {5, 0, 2}, {0, 0, 7}, {2, 2, 0}});
  Trainee ours(BatchNormMode::sync);
  Trainee reference(BatchNormMode::local);
  const auto rank = static_cast<std::size_t>(world().control().rank());
  const Share share = share_of(sizes, rank);
  ours.accumulate(share.samples, share.runs, world().control());
  for (std::size_t round = 0; round < 3; ++round) {
    std::vector<std::int64_t> together;
    for (std::size_t r = 0; r < sizes.size(); ++r) {
      const Share theirs = share_of(sizes, r);
      const auto begin = static_cast<std::ptrdiff_t>(
          std::accumulate(sizes[r].begin(), sizes[r].begin() + static_cast<std::ptrdiff_t>(round), std::int64_t{0}));
      together.insert(together.end(), theirs.samples.begin() + begin,
                      theirs.samples.begin() + begin + static_cast<std::ptrdiff_t>(sizes[r][round]));
    }
    reference.one_batch(together);
  }
  EXPECT_LE(relative_l2(summed_over_ranks(ours.replica->gradients.flat()), reference.replica->gradients.flat()), 1e-13);
  EXPECT_LE(worst_buffer(*ours.replica, *reference.replica), 1e-12);
}

// What a reducer is told early must have arrived: compared with the gradient when all is done.
void expect_final_when_told(BatchNormMode mode) {
  Trainee<> ours(mode);
  comm::LocalCommunicator alone;
  const FlatGradients& gradients = ours.replica->gradients;
  std::map<std::size_t, at::Tensor> told;
  bool begun = false;
  AccumulationOptions options = sharing_with(alone);
  options.told = {[&] { begun = true; },
                  [&](std::size_t index) {
                    EXPECT_TRUE(begun);
                    EXPECT_TRUE(told.emplace(index, gradients.views()[index].clone()).second) << "twice";
                  }};
  const Share share = share_of({{9, 9, 9, 6}}, 0);
  accumulate_gradient(*ours.runner, *ours.data, share.samples, share.runs, k_step, options);
  for (const auto& [index, then] : told)
    EXPECT_TRUE(at::equal(then, gradients.views()[index])) << gradients.parameters()[index].name;
  // All but what is used twice.
  std::set<std::string> silent;
  for (std::size_t i = 0; i < gradients.parameters().size(); ++i) {
    if (!told.contains(i)) silent.insert(gradients.parameters()[i].name);
  }
  EXPECT_EQ(silent, (std::set<std::string>{"conv.weight", "conv.bias", "twice.weight", "twice.bias", "counting.weight",
                                           "counting.bias"}));
}

TEST(GraphStepTest, a_parameter_that_is_told_is_final) {
  expect_final_when_told(BatchNormMode::exact);
  expect_final_when_told(BatchNormMode::sync);
}

TEST(GraphStepTest, loss_and_weight_are_those_of_the_samples) {
  Trainee ours(BatchNormMode::exact);
  Trainee reference(BatchNormMode::local);
  const Share share = share_of({{7, 3, 9}}, 0);
  comm::LocalCommunicator alone;
  const LocalSums sums = ours.accumulate(share.samples, share.runs, alone);
  EXPECT_NEAR(sums.loss, reference.one_batch(share.samples), 1e-11);
  EXPECT_EQ(sums.weight.value(),
            reference.replica->loss.weight(reference.data->gather(share.samples, at::kDouble).targets));
}

TEST(GraphStepTest, kept_in_host_memory_it_is_the_same_with_less_on_the_device) {
  MemoryBudget& budget = MemoryBudget::install();
  const Share share = share_of({{8, 8, 8, 8, 8, 8, 8, 8}}, 0);
  comm::LocalCommunicator alone;
  std::vector<at::Tensor> gradients;
  std::vector<std::int64_t> peaks;
  for (const bool in_host : {false, true}) {
    Trainee ours(BatchNormMode::exact);
    if (in_host) ours.runner->apart()->keep_in(SavedPlace::host);
    ours.accumulate(share.samples, share.runs, alone);  // captures
    ours.replica->gradients.begin_step();
    const std::int64_t held = budget.current_bytes();
    budget.reset_peak();
    ours.accumulate(share.samples, share.runs, alone);
    peaks.push_back(budget.peak_bytes() - held);
    gradients.push_back(ours.replica->gradients.flat().clone());
  }
  EXPECT_TRUE(gradients[0].equal(gradients[1]));
  EXPECT_LT(peaks[1] * 2, peaks[0]);
}

TEST(GraphStepTest, recomputation_has_the_same_bits) {
  comm::LocalCommunicator alone;
  const Share share = share_of({{7, 3, 9}}, 0);
  for (const Precision precision : {Precision::float32, Precision::float64}) {
    Trainee plain(BatchNormMode::local, precision);
    plain.accumulate(share.samples, share.runs, alone);
    plain.accumulate(share.samples, share.runs, alone);
    for (const std::int64_t segments : {0, 2, 5, 40}) {
      Trainee ours(BatchNormMode::local, precision);
      ours.runner->take_apart(
          std::make_unique<GraphStep>(GraphOptions{BatchNormMode::local, segments, AutogradGraph::left_out}));
      ours.accumulate(share.samples, share.runs, alone);
      ours.accumulate(share.samples, share.runs, alone);
      EXPECT_TRUE(ours.replica->gradients.flat().equal(plain.replica->gradients.flat())) << segments;
      EXPECT_EQ(worst_buffer(*ours.replica, *plain.replica), 0.0) << segments;
    }
  }
}

TEST(GraphStepTest, recomputation_cuts_micro_batches_of_unlike_sizes_for_themselves) {
  comm::LocalCommunicator alone;
  const Share share = share_of({{1, 30, 2, 6, 9}}, 0);
  Trainee<WeightedModule> plain(BatchNormMode::local);
  const LocalSums expected = plain.accumulate(share.samples, share.runs, alone);
  Trainee<WeightedModule> ours(BatchNormMode::local);
  ours.runner->take_apart(std::make_unique<GraphStep>(GraphOptions{BatchNormMode::local, 0, AutogradGraph::left_out}));
  const LocalSums sums = ours.accumulate(share.samples, share.runs, alone);
  EXPECT_EQ(sums.loss, expected.loss);
  // What parts read together adds its gradients up in another order.
  EXPECT_LE(relative_l2(ours.replica->gradients.flat(), plain.replica->gradients.flat()), 1e-14);
}

TEST(GraphStepTest, autocast_is_as_in_the_model_itself) {
  comm::LocalCommunicator alone;
  const Share share = share_of({{8, 8}}, 0);
  // No weight is used twice here: one that is has its two gradients summed in bfloat16 by autocast itself, and in
  // float32 over segments.
  using Subject = Trainee<AroundModule, AroundModule::Middle>;
  const AroundModule::Middle middle = [](const at::Tensor& x) {
    return at::conv2d(x.relu(), at::full({3, 3, 3, 3}, 0.1, x.options().requires_grad(false)), {}, 1, 1);
  };
  Subject plain(BatchNormMode::local, Precision::float32, middle);
  Subject ours(BatchNormMode::local, Precision::float32, middle);
  ours.runner->take_apart(std::make_unique<GraphStep>(GraphOptions{BatchNormMode::local, 3, AutogradGraph::left_out}));
  for (Subject* one : {&plain, &ours}) {
    one->replica->autocast = at::kBFloat16;
    one->accumulate(share.samples, share.runs, alone);
  }
  EXPECT_TRUE(ours.replica->gradients.flat().equal(plain.replica->gradients.flat()));
  Subject full(BatchNormMode::local, Precision::float32, middle);
  full.accumulate(share.samples, share.runs, alone);
  EXPECT_GT(relative_l2(plain.replica->gradients.flat(), full.replica->gradients.flat()), 1e-4)
      << "it did compute in bfloat16";
}

// Fails when it is asked for one sample.
class FailingDataset final : public Dataset {
 public:
  FailingDataset(const Dataset& data, std::int64_t fails_at) : data_(data), fails_at_(fails_at) {}
  std::int64_t size() const override { return data_.size(); }
  std::vector<std::int64_t> sample_shape() const override { return data_.sample_shape(); }
  std::int64_t num_classes() const override { return data_.num_classes(); }
  Batch gather(std::span<const std::int64_t> indices, at::ScalarType type) const override {
    for (const std::int64_t index : indices) {
      if (index == fails_at_) throw std::runtime_error("unreadable sample");
    }
    return data_.gather(indices, type);
  }

 private:
  const Dataset& data_;
  std::int64_t fails_at_;
};

TEST(GraphStepTest, no_rank_waits_for_one_that_fails) {
  for (const BatchNormMode mode : {BatchNormMode::exact, BatchNormMode::sync}) {
    Trainee ours(mode);
    const Sizes sizes = first_ranks({{4, 6}, {5, 2}, {3, 7}, {3, 2}});
    const auto rank = static_cast<std::size_t>(world().control().rank());
    const Share share = share_of(sizes, rank);
    const FailingDataset data(*ours.data, share_of(sizes, sizes.size() - 1).samples.back());
    const AccumulationOptions options = sharing_with(world().control());
    if (rank + 1 == sizes.size()) {
      EXPECT_THROW(accumulate_gradient(*ours.runner, data, share.samples, share.runs, k_step, options),
                   std::runtime_error);
    } else {
      EXPECT_THROW(accumulate_gradient(*ours.runner, data, share.samples, share.runs, k_step, options), StepAbandoned);
    }
    world().control().barrier();
  }
}

std::string refusal_of(const AroundModule::Middle& middle) {
  Trainee<AroundModule, AroundModule::Middle> ours(BatchNormMode::exact, Precision::float64, middle);
  ours.runner->take_apart(std::make_unique<GraphStep>(GraphOptions{BatchNormMode::exact, 0, AutogradGraph::recorded}));
  const Share share = share_of({{4, 4}}, 0);
  comm::LocalCommunicator alone;
  try {
    ours.accumulate(share.samples, share.runs, alone);
  } catch (const CannotCapture& error) {
    return error.what();
  }
  return "";
}

struct Doubling : torch::autograd::Function<Doubling> {
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/, const at::Tensor& x) {
    const c10::impl::ExcludeDispatchKeyGuard unseen(c10::DispatchKey::TESTING_ONLY_GenericMode);
    return x * 2.0;
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* /*context*/,
                                               torch::autograd::tensor_list gradients) {
    return {gradients[0] * 2.0};
  }
};

TEST(GraphStepRefusesTest, what_a_tape_cannot_hold_by_operator_and_place) {
  const at::Tensor foreign = at::ones({3, 1, 1}, at::kDouble);
  const std::vector<std::pair<AroundModule::Middle, std::vector<std::string>>> cases = {
      {[](const at::Tensor& x) { return x * x.mean().item<double>(); }, {"aten::", "after before", "number"}},
      {[](const at::Tensor& x) { return Doubling::apply(x); }, {"custom autograd function"}},
      {[&](const at::Tensor& x) { return x + foreign; }, {"aten::add", "register it as a buffer"}},
      {[](const at::Tensor& x) { return x * at::bernoulli(at::full_like(x, 0.5)); }, {"aten::bernoulli", "random"}},
      {[](const at::Tensor& x) { return x.masked_select(x > 0.0).sum() + x; }, {"aten::masked_select", "shape"}},
      {[](const at::Tensor& x) {
         return x * at::tensor({1.0, 2.0, 3.0}, x.options().requires_grad(false)).view({3, 1, 1});
       },
       {"filled"}},
  };
  for (const auto& [middle, words] : cases) {
    const std::string text = refusal_of(middle);
    for (const std::string& word : words) EXPECT_NE(text.find(word), std::string::npos) << word << " in: " << text;
  }
}

TEST(GraphStepRefusesTest, a_write_through_a_view_of_what_another_part_reads) {
  // The BatchNorm's input is read again after a view of it was written to in another segment.
  const std::string text = refusal_of([](const at::Tensor& x) {
    at::Tensor y = x * 1.5;
    const at::Tensor view = y.view({-1});
    const at::Tensor z = at::batch_norm(y, {}, {}, {}, {}, true, 0.1, 1e-5, false);
    view.mul_(0.5);
    return z + y;
  });
  EXPECT_NE(text.find("aten::mul_"), std::string::npos) << text;
  EXPECT_NE(text.find("view"), std::string::npos) << text;
}

TEST(GraphStepRefusesTest, no_write_through_a_view_that_stays_in_one_part) {
  const AroundModule::Middle middle = [](const at::Tensor& x) {
    at::Tensor y = x.clone();
    y.narrow(1, 0, 1).mul_(0.5);
    return y.relu_() + at::arange(8, x.options().requires_grad(false)) * 0.1;
  };
  Trainee<AroundModule, AroundModule::Middle> ours(BatchNormMode::exact, Precision::float64, middle);
  Trainee<AroundModule, AroundModule::Middle> reference(BatchNormMode::local, Precision::float64, middle);
  const Share share = share_of({{4, 5}}, 0);
  comm::LocalCommunicator alone;
  ours.accumulate(share.samples, share.runs, alone);
  reference.one_batch(share.samples);
  EXPECT_LE(relative_l2(ours.replica->gradients.flat(), reference.replica->gradients.flat()), 1e-13);
}

}  // namespace
}  // namespace onebatch
