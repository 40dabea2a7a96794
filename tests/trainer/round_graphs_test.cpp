// Rounds of micro-batches that are replayed from one exchange to the next, on the CPU with a double that runs again
// what it recorded, on one to four ranks: the same bits as without, whoever replays and whoever does not.
#include "comm/local_communicator.hpp"
#include "comm/ranks_main.hpp"
#include "trainer/device/memory_budget.hpp"
#include "trainer/io/named_tensors.hpp"
#include "trainer/models/trainable_module.hpp"
#include "trainer/step/graph_step.hpp"
#include "trainer/step/step_graphs.hpp"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <map>
#include <numeric>
#include <semaphore>
#include <thread>

namespace onebatch {
namespace {

using onebatch::testing::world;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace nn = torch::nn;

class SmallModule final : public TrainableModule {
 public:
  SmallModule() {
    stem_ = register_module("stem", nn::Conv2d(nn::Conv2dOptions(3, 4, 3).padding(1)));
    first_ = register_module("first", nn::BatchNorm2d(4));
    conv_ = register_module("conv", nn::Conv2d(nn::Conv2dOptions(4, 4, 3).padding(1)));
    second_ = register_module("second", nn::BatchNorm2d(nn::BatchNorm2dOptions(4).momentum(0.3)));
    head_ = register_module("head", nn::Linear(4, 10));
    last_ = register_module("last", nn::BatchNorm1d(10));
  }
  at::Tensor forward(const at::Tensor& inputs, const ForwardContext& /*context*/) override {
    const at::Tensor x = first_->forward(stem_->forward(inputs)).relu_();
    return last_->forward(head_->forward(second_->forward(conv_->forward(x)).add(x).tanh().mean({2, 3})));
  }

 private:
  nn::Conv2d stem_{nullptr}, conv_{nullptr};
  nn::BatchNorm2d first_{nullptr}, second_{nullptr};
  nn::Linear head_{nullptr};
  nn::BatchNorm1d last_{nullptr};
};

enum class Defect { none, rounds, skips_a_part, refuses };

struct Seen {
  int recorded = 0;
  std::size_t parts = 0;  // of the last that was recorded
  int replayed = 0;       // whole
  bool is_replaying = false;
  Defect defect = Defect::none;
};

// Work that runs on a thread of its own as far as its parts are asked for.
class Played {
 public:
  using Work = std::function<void(const DeviceGraphs::Cut&)>;
  Played(Work work, Replica& replica, Seen& seen) : work_(std::move(work)), replica_(replica), seen_(seen) {}
  ~Played() { stop(); }
  Played(const Played&) = delete;
  Played& operator=(const Played&) = delete;

  void play(std::size_t part, std::size_t parts) {
    if (part == 0) begin();
    if (seen_.defect == Defect::skips_a_part && part == 1) return;
    seen_.is_replaying = true;
    go_.release();
    stopped_.acquire();
    seen_.is_replaying = false;
    if (part + 1 < parts) return;
    ++seen_.replayed;
    if (seen_.defect == Defect::rounds) replica_.gradients.flat().mul_(1.0 + 1e-12);
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  struct Ended {};

  void begin() {
    stop();
    ends_ = false;
    thread_ = std::thread([this] {
      go_.acquire();
      try {
        if (!ends_)
          work_([this] {
            stopped_.release();
            go_.acquire();
            if (ends_) throw Ended();
          });
      } catch (const Ended&) {
      } catch (...) {
        failure_ = std::current_exception();
      }
      is_done_ = true;
      stopped_.release();
    });
  }

  void stop() {
    if (!thread_.joinable()) return;
    ends_ = true;
    if (!is_done_) go_.release();
    thread_.join();
    is_done_ = false;
    while (stopped_.try_acquire()) {
    }
    while (go_.try_acquire()) {
    }
  }

  Work work_;
  Replica& replica_;
  Seen& seen_;
  std::thread thread_;
  std::counting_semaphore<> go_{0}, stopped_{0};
  std::atomic<bool> ends_{false}, is_done_{false};
  std::exception_ptr failure_;
};

class PartPlayed final : public DeviceGraph {
 public:
  PartPlayed(std::shared_ptr<Played> whole, std::size_t part, std::size_t parts)
      : whole_(std::move(whole)), part_(part), parts_(parts) {}
  void replay() override { whole_->play(part_, parts_); }

 private:
  std::shared_ptr<Played> whole_;
  std::size_t part_, parts_;
};

// What it records runs, to be looked at, and is taken back.
class Double final : public DeviceGraphs {
 public:
  Double(Replica& replica, Seen& seen) : replica_(replica), seen_(seen) {}

  std::vector<std::unique_ptr<DeviceGraph>> record(const std::function<void(const Cut&)>& work) override {
    ++seen_.recorded;
    const at::Tensor gradient = replica_.gradients.flat().clone();
    const SavedTensors buffers(replica_.model->buffers());
    const at::Tensor loss = numbers->loss_sum.clone();
    std::size_t parts = 1;
    work([&] {
      if (++parts == 3 && seen_.defect == Defect::refuses) throw std::runtime_error("not permitted");
    });
    seen_.parts = parts;
    replica_.gradients.flat().copy_(gradient);
    numbers->loss_sum.copy_(loss);
    buffers.restore();
    const auto whole = std::make_shared<Played>(work, replica_, seen_);
    std::vector<std::unique_ptr<DeviceGraph>> made;
    for (std::size_t i = 0; i < parts; ++i) made.push_back(std::make_unique<PartPlayed>(whole, i, parts));
    return made;
  }

  const StepNumbers* numbers = nullptr;

 private:
  Replica& replica_;
  Seen& seen_;
};

Configuration configuration_of(BatchNormMode mode) {
  Configuration c;
  c.data.train.kind = "synthetic";
  c.data.train.shape = {3, 8, 8};
  c.data.train.size = 300;
  c.batch.global_batch_size = 100;
  c.optimizer.kind = "sgd";
  c.batch_norm.mode = mode;
  c.memory.recompute = mode == BatchNormMode::local ? Recompute::on : c.memory.recompute;
  c.precision.parameters = c.precision.compute = Precision::float64;
  return c;
}

class Trainee {
 public:
  explicit Trainee(BatchNormMode mode, bool with_graphs, Defect defect = Defect::none)
      : configuration_(configuration_of(mode)), data(open_dataset(configuration_.data.train, Split::train, 1)) {
    seen.defect = defect;
    DeviceRequest request;
    request.simulate.assign(static_cast<std::size_t>(world().control().size()), SimulatedDevice{});
    request.rank = world().control().rank();
    device_ = bind_device(request);
    at::manual_seed(3);
    auto model = wrap_module(std::make_shared<SmallModule>());
    model->move_to(c10::Device(c10::kCPU), at::kDouble, at::kDouble);
    replica = std::make_unique<Replica>(configuration_, *data, *device_, std::move(model), nullptr);
    runner.emplace(choose_runner(configuration_, *replica));
    if (!with_graphs) return;
    auto device = std::make_unique<Double>(*replica, seen);
    Double& made = *device;
    graphs = std::make_unique<StepGraphs>(*replica, std::move(device));
    made.numbers = &graphs->begin_step();
  }

  LocalSums step(const std::vector<std::int64_t>& sizes, comm::Communicator& ranks, FinalParameters told = {},
                 const Dataset* from = nullptr) {
    replica->gradients.begin_step();
    samples_.resize(static_cast<std::size_t>(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0})));
    std::iota(samples_.begin(), samples_.end(), first_);
    first_ = (first_ + 17) % 150;
    std::vector<MicroBatchRun> runs;
    for (const std::int64_t size : sizes) runs.push_back({size, 1});
    AccumulationOptions options;
    options.ranks = &ranks;
    options.graphs = graphs.get();
    options.told = std::move(told);
    return accumulate_gradient(*runner, from != nullptr ? *from : *data, samples_, runs, k_step, options);
  }

  Seen seen;

 private:
  static constexpr std::int64_t k_step = 4;
  Configuration configuration_;
  std::unique_ptr<ComputeDevice> device_;
  std::int64_t first_ = 13 * world().control().rank();
  std::vector<std::int64_t> samples_;

 public:
  std::unique_ptr<Dataset> data;
  std::unique_ptr<Replica> replica;
  std::optional<MicroBatchRunner> runner;
  std::unique_ptr<StepGraphs> graphs;
};

void expect_same_state(const Trainee& ours, const Trainee& plain) {
  ASSERT_TRUE(ours.replica->gradients.flat().equal(plain.replica->gradients.flat()));
  ASSERT_EQ(ours.replica->gradients.touched(), plain.replica->gradients.touched());
  const auto expected = plain.replica->model->buffers();
  const auto found = ours.replica->model->buffers();
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_TRUE(found[i].tensor.equal(expected[i].tensor)) << expected[i].name;
}

// By step, rank and micro-batch.
using Steps = std::vector<std::vector<std::vector<std::int64_t>>>;

std::size_t my_rank() {
  return static_cast<std::size_t>(world().control().rank());
}

void expect_the_same(Trainee& ours, BatchNormMode mode, const Steps& steps) {
  Trainee plain(mode, false);
  for (const auto& sizes : steps) {
    const LocalSums expected = plain.step(sizes[my_rank()], world().control());
    const LocalSums found = ours.step(sizes[my_rank()], world().control());
    ASSERT_EQ(found.loss, expected.loss);
    ASSERT_EQ(found.weight.value(), expected.weight.value());
    expect_same_state(ours, plain);
  }
}

const std::vector<std::vector<std::int64_t>> k_sizes = {{4, 4}, {5, 3, 3}, {2, 6}, {7}};
const std::vector<std::vector<std::int64_t>> k_last = {{4, 4}, {3}, {5}, {6, 2}};

Steps ordinary_steps(std::size_t number) {
  return Steps(number, k_sizes);
}

TEST(RoundGraphsTest, what_is_replayed_is_the_same) {
  const bool alone = world().control().size() == 1;
  for (const auto& [mode, parts, rounds] :
       {std::tuple(BatchNormMode::exact, 7, 1), {BatchNormMode::sync, 7, 2}, {BatchNormMode::local, 1, 2}}) {
    Trainee ours(mode, true);
    expect_the_same(ours, mode, ordinary_steps(6));
    EXPECT_EQ(ours.seen.parts, static_cast<std::size_t>(alone ? 1 : parts));
    // Of the first rank two run as ever, and the third is compared. Of synchronised ones that is so of each of the two,
    // after a step that shows what others have.
    const int ordinary = !alone && mode == BatchNormMode::sync ? 3 * rounds : 2;
    if (my_rank() == 0) {
      EXPECT_EQ(ours.seen.replayed, (6 * rounds) - ordinary);
    }
    const auto news = ours.graphs->take_news();
    EXPECT_THAT(news.given_up, IsEmpty());
    EXPECT_THAT(news.recorded, HasSubstr("run as CUDA graphs"));
  }
}

TEST(RoundGraphsTest, a_rank_without_samples_takes_part) {
  Steps steps = ordinary_steps(6);
  for (auto& sizes : steps) sizes[static_cast<std::size_t>(world().control().size() - 1)] = {};
  if (world().control().size() == 1) return;
  Trainee ours(BatchNormMode::exact, true);
  expect_the_same(ours, BatchNormMode::exact, steps);
  EXPECT_EQ(ours.seen.replayed, steps[0][my_rank()].empty() ? 0 : 4);
}

// The first rank's own are the same in all steps.
TEST(RoundGraphsTest, where_other_ranks_have_other_counts_the_round_runs_as_ever) {
  for (const BatchNormMode mode : {BatchNormMode::exact, BatchNormMode::sync}) {
    Steps steps = ordinary_steps(5);
    steps.push_back(k_last);
    for (const auto& sizes : ordinary_steps(5)) steps.push_back(sizes);
    for (int i = 0; i < 5; ++i) {
      steps.push_back(k_last);
      steps.push_back(k_sizes);
    }
    Trainee ours(mode, true);
    expect_the_same(ours, mode, steps);
    EXPECT_THAT(ours.graphs->take_news().given_up, IsEmpty());
    if (my_rank() > 0 || world().control().size() == 1) continue;
    EXPECT_GE(ours.seen.recorded, 1);
    if (mode == BatchNormMode::exact) {
      EXPECT_EQ(ours.seen.recorded, 1);
      EXPECT_EQ(ours.seen.replayed, 1 + 2 + 5 + 5);
    }
  }
}

TEST(RoundGraphsTest, a_replay_is_not_compared_with_a_round_of_other_counts) {
  Steps steps = {k_sizes, k_sizes, k_last, k_sizes, k_sizes, k_sizes};
  Trainee ours(BatchNormMode::exact, true);
  expect_the_same(ours, BatchNormMode::exact, steps);
  EXPECT_THAT(ours.graphs->take_news().given_up, IsEmpty());
  if (my_rank() > 0 || world().control().size() == 1) return;
  EXPECT_EQ(ours.seen.recorded, 1);
  EXPECT_EQ(ours.seen.replayed, 3);
}

// Three in a row are wrong, two run as ever, and one is compared.
TEST(RoundGraphsTest, a_round_is_recorded_anew_where_other_counts_last) {
  Steps steps = ordinary_steps(4);
  for (int i = 0; i < 8; ++i) steps.push_back(k_last);
  Trainee ours(BatchNormMode::exact, true);
  expect_the_same(ours, BatchNormMode::exact, steps);
  EXPECT_THAT(ours.graphs->take_news().given_up, IsEmpty());
  if (my_rank() > 0 || world().control().size() == 1) return;
  EXPECT_EQ(ours.seen.recorded, 2);
  EXPECT_EQ(ours.seen.replayed, 2 + (8 - 3 - 2));
}

// Work whose gradient does not tell what it has sent.
TEST(RoundGraphsTest, what_a_replay_sends_is_compared) {
  for (const bool differs : {false, true}) {
    Trainee ours(BatchNormMode::exact, true);
    comm::LocalCommunicator nobody;
    StepExchange exchange(
        nobody, [] {}, [] {});
    LiveMeetings live(exchange, c10::Device(c10::kCPU), nullptr);
    for (int i = 0; i < 4; ++i) {
      const auto run = [&](const std::vector<Batch>&, std::vector<at::Tensor>&, Meetings& meetings) {
        const double sent = differs && ours.seen.is_replaying ? 2.0 : 1.0;
        meetings.meet({{1.0}, {true}, at::full({2}, sent, at::kDouble), 1}, {});
        ours.replica->gradients.flat().add_(1.0);
      };
      Batch batch;
      batch.inputs.push_back(at::ones({3}));
      ours.graphs->run({WorkKind::round, {}, {batch}, run, [](std::size_t) { return at::Tensor(); }}, live);
    }
    const auto news = ours.graphs->take_news();
    EXPECT_EQ(news.given_up.empty(), !differs) << news.given_up;
    EXPECT_EQ(ours.replica->gradients.flat()[0].item<double>(), 4.0);
  }
}

TEST(RoundGraphsTest, one_rank_alone_may_replay_otherwise_and_is_seen) {
  for (const auto& [defect, why] : {std::pair(Defect::rounds, "another gradient"),
                                    {Defect::skips_a_part, "another gradient"},
                                    {Defect::refuses, "cannot be recorded: not permitted"}}) {
    if (defect != Defect::rounds && world().control().size() == 1) continue;  // there is one part
    Trainee ours(BatchNormMode::exact, true, my_rank() == 0 ? defect : Defect::none);
    expect_the_same(ours, BatchNormMode::exact, ordinary_steps(6));
    const auto news = ours.graphs->take_news();
    if (my_rank() == 0) {
      EXPECT_THAT(news.given_up, HasSubstr(why));
    } else {
      EXPECT_EQ(ours.seen.replayed, 4);
    }
  }
}

// Nobody is told while a replay is compared; a replay tells as ordinary work does.
TEST(RoundGraphsTest, a_parameter_that_is_told_is_final) {
  for (const BatchNormMode mode : {BatchNormMode::exact, BatchNormMode::sync}) {
    Trainee ours(mode, true);
    Trainee plain(mode, false);
    const FlatGradients& gradients = ours.replica->gradients;
    int all_told = 0;
    for (int step = 0; step < 6; ++step) {
      std::map<std::size_t, at::Tensor> told;
      std::size_t told_plainly = 0;
      bool begun = false;
      ours.step({6, 6}, world().control(),
                {[&] { begun = true; },
                 [&](std::size_t index) {
                   EXPECT_TRUE(begun);
                   EXPECT_TRUE(told.emplace(index, gradients.views()[index].clone()).second) << "twice";
                 },
                 true});
      plain.step({6, 6}, world().control(), {[] {}, [&](std::size_t) { ++told_plainly; }, true});
      expect_same_state(ours, plain);
      for (const auto& [index, then] : told) EXPECT_TRUE(at::equal(then, gradients.views()[index]));
      EXPECT_TRUE(told.empty() || told.size() == told_plainly);
      const bool is_quiet = told.empty();
      EXPECT_FALSE(is_quiet && (step == 0 || step == 5)) << step;
      all_told += told.empty() ? 0 : 1;
    }
    // One round is recorded in quiet and one compared; of synchronised ones those that are not the last need none.
    const int quiet = mode == BatchNormMode::exact ? 2 : world().control().size() == 1 ? 0 : 1;
    EXPECT_EQ(all_told, 6 - quiet);
    EXPECT_GE(ours.seen.replayed, 2);
  }
}

class UnreadableDataset final : public Dataset {
 public:
  explicit UnreadableDataset(const Dataset& data) : data_(data) {}
  std::int64_t size() const override { return data_.size(); }
  std::int64_t num_classes() const override { return data_.num_classes(); }
  std::vector<std::int64_t> sample_shape() const override { return data_.sample_shape(); }
  Batch gather(std::span<const std::int64_t> /*indices*/, at::ScalarType /*type*/) const override {
    throw std::runtime_error("unreadable sample");
  }

 private:
  const Dataset& data_;
};

TEST(RoundGraphsTest, no_replay_waits_for_a_rank_that_fails) {
  for (const BatchNormMode mode : {BatchNormMode::exact, BatchNormMode::sync}) {
    Trainee ours(mode, true);
    Trainee plain(mode, false);
    const bool fails = my_rank() + 1 == static_cast<std::size_t>(world().control().size());
    const UnreadableDataset unreadable(*ours.data);
    for (int step = 0; step < 6; ++step) {
      for (Trainee* one : {&plain, &ours}) {
        const auto go = [&] {
          one->step(k_sizes[my_rank()], world().control(), {}, step == 4 && fails ? &unreadable : nullptr);
        };
        if (step != 4) {
          go();
        } else if (fails) {
          EXPECT_THROW(go(), std::runtime_error);
        } else {
          EXPECT_THROW(go(), StepAbandoned);
        }
      }
      if (step != 4) expect_same_state(ours, plain);
    }
  }
}

}  // namespace
}  // namespace onebatch
