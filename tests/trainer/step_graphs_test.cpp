// Micro-steps that are replayed, on the CPU with a double that runs again what it recorded: which of them are, that
// nothing else changes, and that what is recorded wrongly is never used.
#include "trainer/step/step_graphs.hpp"

#include "trainer/device/host.hpp"
#include "trainer/io/named_tensors.hpp"

#include <ATen/ops/ones.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace onebatch {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Cut = DeviceGraphs::Cut;

enum class Defect {
  none,
  refuses,
  out_of_memory,
  replays_nothing,
  replays_what_was_recorded,
  rounds,
  other_statistics
};

// Its memory is what graphs take.
class CountedHost final : public ComputeDevice {
 public:
  c10::Device device() const override { return c10::Device(c10::kCPU); }
  std::string name() const override { return "host"; }
  std::int64_t memory_limit_bytes() const override { return limit; }
  std::int64_t current_bytes() const override { return held; }
  std::int64_t peak_bytes() const override { return held; }
  void reset_peak() override {}
  void empty_cache() override {}
  void synchronize() override {}

  std::int64_t limit = 1000;
  std::int64_t held = 0;
};

struct Seen {
  int recorded = 0;
  int replayed = 0;
  Defect defect = Defect::none;
};

class Again final : public DeviceGraph {
 public:
  Again(CountedHost& host, std::function<void()> work) : host_(host), work_(std::move(work)) { host_.held += k_bytes; }
  ~Again() override { host_.held -= k_bytes; }
  void replay() override { work_(); }

 private:
  static constexpr std::int64_t k_bytes = 100;
  CountedHost& host_;
  std::function<void()> work_;
};

// What it records runs, to be looked at, and is taken back.
class Double final : public DeviceGraphs {
 public:
  Double(Replica& replica, CountedHost& host, Seen& seen) : replica_(replica), host_(host), seen_(seen) {}

  std::vector<std::unique_ptr<DeviceGraph>> record(const std::function<void(const Cut&)>& given) override {
    const auto work = [given] { given([] { FAIL() << "micro-steps meet nobody"; }); };
    if (seen_.defect == Defect::refuses)
      throw std::runtime_error("operation not permitted when stream is capturing\nand more");
    if (seen_.defect == Defect::out_of_memory) TORCH_CHECK_WITH(OutOfMemoryError, false, "out of memory");
    ++seen_.recorded;
    const at::Tensor gradient = replica_.gradients.flat().clone();
    const SavedTensors buffers(replica_.model->buffers());
    const at::Tensor loss = numbers->loss_sum.clone();
    work();
    const at::Tensor own = replica_.gradients.flat().sub(gradient);
    replica_.gradients.flat().copy_(gradient);
    numbers->loss_sum.copy_(loss);
    buffers.restore();
    std::vector<std::unique_ptr<DeviceGraph>> made;
    made.push_back(std::make_unique<Again>(host_, [this, work, own] { replay(work, own); }));
    return made;
  }

  const StepNumbers* numbers = nullptr;

 private:
  void replay(const std::function<void()>& work, const at::Tensor& own) {
    ++seen_.replayed;
    if (seen_.defect == Defect::replays_nothing) return;
    if (seen_.defect == Defect::replays_what_was_recorded) {
      replica_.gradients.flat().add_(own);
      return;
    }
    work();
    if (seen_.defect == Defect::rounds) replica_.gradients.flat().mul_(1.0 + 1e-12);
    if (seen_.defect == Defect::other_statistics) replica_.model->buffers().front().tensor.add_(1.0);
  }

  Replica& replica_;
  CountedHost& host_;
  Seen& seen_;
};

Configuration configuration() {
  Configuration c;
  c.data.train.kind = "synthetic";
  c.data.train.shape = {3, 8, 8};
  c.data.train.size = 100;
  c.model.kind = "resnet";
  c.model.depth = 8;
  c.model.stem = ResNetStem::cifar;
  c.batch.global_batch_size = 20;
  c.precision.parameters = c.precision.compute = Precision::float64;
  return c;
}

// A replica whose micro-steps go through graphs, or do not.
class Trainee {
 public:
  explicit Trainee(bool with_graphs, Defect defect = Defect::none)
      : data_(open_dataset(configuration().data.train, Split::train, 1)), replica(configuration(), *data_, host) {
    seen.defect = defect;
    numbers_ = {at::zeros({}, at::kDouble), at::zeros({}, at::kDouble), at::ones({}, at::kDouble)};
    if (!with_graphs) return;
    auto device = std::make_unique<Double>(replica, host, seen);
    Double& made = *device;
    graphs = std::make_unique<StepGraphs>(replica, std::move(device));
    made.numbers = &graphs->begin_step();
  }

  // Of micro-batches of these sizes.
  void step(const std::vector<std::int64_t>& sizes) {
    replica.gradients.begin_step();
    now = graphs ? &graphs->begin_step() : &numbers_;
    if (!graphs) now->loss_sum.zero_();
    for (const std::int64_t size : sizes) {
      samples_.resize(static_cast<std::size_t>(size));
      std::iota(samples_.begin(), samples_.end(), next_);
      next_ = (next_ + size) % 50;
      const Batch batch = replica.load(*data_, samples_).batch;
      replica.gradients.begin_backward();
      at::Tensor key;
      NoMeetings nobody;
      if (graphs)
        graphs->run(work_of(batch), nobody);
      else
        micro_step_(batch, key);
    }
  }

  double noise = 0.0;
  double scale = 1.0;
  bool draws = false;
  const StepNumbers* now = nullptr;
  CountedHost host;
  Seen seen;

 private:
  std::unique_ptr<Dataset> data_;
  std::int64_t next_ = 0;
  std::vector<std::int64_t> samples_;
  StepNumbers numbers_;

  StepWork work_of(const Batch& batch) {
    const auto run = [this](const std::vector<Batch>& given, std::vector<at::Tensor>& keys, Meetings&) {
      micro_step_(given.front(), keys.front());
    };
    return {WorkKind::micro_step, {}, {batch}, run, [this](std::size_t) { return own_key(); }};
  }

  at::Tensor own_key() const { return at::tensor(samples_).to(at::kDouble); }

  // Where it draws, what it draws depends on the samples.
  std::function<void(const Batch&, at::Tensor&)> micro_step_ = [this](const Batch& batch, at::Tensor& key) {
    at::Tensor loss = replica.forward(batch, {}).loss;
    if (draws && !key.defined()) key = own_key();
    if (draws) loss = loss.mul(key.sum());
    loss.mul(scale).backward();
    if (noise > 0.0) replica.gradients.flat().add_(at::randn_like(replica.gradients.flat()), noise);
    now->loss_sum.add_(loss.detach());
  };

 public:
  Replica replica;
  std::unique_ptr<StepGraphs> graphs;
};

const std::vector<std::vector<std::int64_t>> k_steps = {{6, 6, 6, 2}, {6, 6, 6, 2}, {6, 6, 6, 2}, {7}, {6, 6, 6, 2}};

// After each step gradient, loss and buffers have the same bits as without graphs.
void expect_the_same(Trainee& ours) {
  Trainee plain(false);
  plain.draws = ours.draws;
  for (const auto& sizes : k_steps) {
    plain.step(sizes);
    ours.step(sizes);
    ASSERT_TRUE(ours.replica.gradients.flat().equal(plain.replica.gradients.flat()));
    ASSERT_TRUE(ours.now->loss_sum.equal(plain.now->loss_sum));
    ASSERT_EQ(ours.replica.gradients.touched(), plain.replica.gradients.touched());
    const auto expected = plain.replica.model->buffers();
    const auto found = ours.replica.model->buffers();
    for (std::size_t i = 0; i < expected.size(); ++i)
      ASSERT_TRUE(found[i].tensor.equal(expected[i].tensor)) << expected[i].name;
  }
}

TEST(StepGraphsTest, what_is_replayed_is_the_same_and_each_shape_has_one_graph) {
  Trainee ours(true);
  expect_the_same(ours);
  EXPECT_EQ(ours.seen.recorded, 2) << "of 6 and of 2: 7 came once";
  EXPECT_EQ(ours.seen.replayed, (12 - 2) + (4 - 2));
  const auto news = ours.graphs->take_news();
  EXPECT_THAT(news.recorded, HasSubstr("micro-batches of 6"));
  EXPECT_THAT(news.given_up, IsEmpty());
  EXPECT_FALSE(ours.graphs->has_news());
}

TEST(StepGraphsTest, a_replay_draws_by_its_own_samples) {
  Trainee ours(true);
  ours.draws = true;
  expect_the_same(ours);
  EXPECT_EQ(ours.seen.replayed, (12 - 2) + (4 - 2));
  EXPECT_THAT(ours.graphs->take_news().given_up, IsEmpty());
}

TEST(StepGraphsTest, what_replays_otherwise_is_seen_before_it_is_used) {
  for (const auto& [defect, why] : {std::pair(Defect::replays_nothing, "another gradient"),
                                    {Defect::replays_what_was_recorded, "another gradient"},
                                    {Defect::rounds, "another gradient"},
                                    {Defect::other_statistics, "another gradient"},
                                    {Defect::refuses, "not permitted when stream is capturing"},
                                    {Defect::out_of_memory, "no memory for a graph"}}) {
    Trainee ours(true, defect);
    expect_the_same(ours);
    EXPECT_LE(ours.seen.replayed, 1);
    const auto news = ours.graphs->take_news();
    EXPECT_THAT(news.given_up, HasSubstr(why));
    EXPECT_THAT(news.given_up, testing::Not(HasSubstr("\n")));
    EXPECT_THAT(news.recorded, IsEmpty());
    EXPECT_EQ(ours.host.held, 0);
  }
}

TEST(StepGraphsTest, kernels_that_add_in_any_order_are_compared_with_themselves) {
  Trainee ours(true);
  ours.noise = 1e-12;
  for (const auto& sizes : k_steps) ours.step(sizes);
  EXPECT_GT(ours.seen.replayed, 5);
  EXPECT_THAT(ours.graphs->take_news().given_up, IsEmpty());
}

TEST(StepGraphsTest, gradients_that_are_zero_or_not_finite_say_nothing) {
  Trainee ours(true);
  ours.scale = std::numeric_limits<double>::quiet_NaN();
  ours.step({6, 6, 6, 6});
  EXPECT_FALSE(ours.graphs->has_news());
  ours.scale = 0.0;
  ours.step({6});
  EXPECT_FALSE(ours.graphs->has_news());
  ours.scale = 1.0;
  ours.step({6});
  EXPECT_THAT(ours.graphs->take_news().recorded, HasSubstr("micro-batches of 6"));
}

TEST(StepGraphsTest, what_has_moved_is_recorded_again) {
  Trainee ours(true);
  ours.step({6, 6, 6, 6});
  EXPECT_EQ(ours.seen.recorded, 1);
  const at::Tensor buffer = ours.replica.model->buffers().front().tensor;
  buffer.set_data(buffer.clone());
  ours.step({6, 6});
  EXPECT_EQ(ours.seen.recorded, 2);
  EXPECT_EQ(ours.seen.replayed, 2 + 1);
}

TEST(StepGraphsTest, what_was_released_is_recorded_again) {
  Trainee ours(true);
  ours.step({6, 6, 6});
  EXPECT_TRUE(ours.graphs->is_holding());
  ours.graphs->release();
  EXPECT_FALSE(ours.graphs->is_holding());
  EXPECT_EQ(ours.host.held, 0);
  ours.step({6});
  EXPECT_EQ(ours.seen.recorded, 2);
}

TEST(StepGraphsTest, as_much_memory_has_to_be_left_as_graphs_hold) {
  for (const std::int64_t limit : {199, 200}) {
    Trainee ours(true);
    ours.host.limit = limit;
    expect_the_same(ours);
    EXPECT_EQ(ours.graphs->is_holding(), false) << "a second graph has no room";
    EXPECT_THAT(ours.graphs->take_news().given_up, HasSubstr("not as much is left"));
    EXPECT_EQ(ours.seen.recorded, limit == 200 ? 2 : 1);
  }
}

}  // namespace
}  // namespace onebatch
