// Out of memory in the middle of a step: the gradient is that of all samples, each once, wherever it struck.
#include "trainer/step/accumulation.hpp"

#include "trainer/base/error.hpp"
#include "trainer/device/memory_budget.hpp"
#include "trainer/step/graph_step.hpp"
#include "trainer/step/step_graphs.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

namespace onebatch {
namespace {

Configuration configuration_of(const std::string& kind) {
  Configuration c;
  c.data.train.kind = "synthetic";
  c.data.train.shape = kind == "mlp" ? std::vector<std::int64_t>{40} : std::vector<std::int64_t>{3, 16, 16};
  c.data.train.size = 200;
  c.model.kind = kind;
  c.model.hidden = {64, 48, 32};
  c.model.dropout = kind == "mlp" ? 0.3 : 0.0;  // keyed by sample: halves drop the same
  c.model.depth = 8;
  c.model.stem = ResNetStem::cifar;
  c.batch.global_batch_size = 96;
  c.precision.parameters = c.precision.compute = Precision::float64;
  return c;
}

class AccumulationTest : public ::testing::Test {
 protected:
  void make(const Configuration& configuration, const SimulatedDevice& simulated = {}) {
    budget().set_limit_bytes(MemoryBudget::k_no_limit);
    data_ = open_dataset(configuration.data.train, Split::train, 1);
    DeviceRequest request;
    request.simulate = {simulated};
    device_ = bind_device(request);
    replica_ = std::make_unique<Replica>(configuration, *data_, *device_);
    runner_.emplace(choose_runner(configuration, *replica_));
    samples_.resize(96);
    std::iota(samples_.begin(), samples_.end(), std::int64_t{7});
  }
  void TearDown() override { budget().set_limit_bytes(MemoryBudget::k_no_limit); }

  static MemoryBudget& budget() { return MemoryBudget::install(); }

  LocalSums accumulate(const std::vector<MicroBatchRun>& micro_batches, bool split = true) {
    replica_->gradients.begin_step();
    return accumulate_gradient(*runner_, *data_, samples_, micro_batches, 3,
                               {.told = {}, .split_on_out_of_memory = split});
  }

  // Bytes above what is held that one pass needs.
  std::int64_t need(const std::vector<MicroBatchRun>& micro_batches) {
    accumulate(micro_batches);
    const std::int64_t held = budget().current_bytes();
    budget().reset_peak();
    accumulate(micro_batches);
    return budget().peak_bytes() - held;
  }

  std::unique_ptr<Dataset> data_;
  std::unique_ptr<ComputeDevice> device_;
  std::unique_ptr<Replica> replica_;
  std::optional<MicroBatchRunner> runner_;
  std::vector<std::int64_t> samples_;
};

double relative(const at::Tensor& a, const at::Tensor& b) {
  return (at::linalg_vector_norm(a - b) / at::linalg_vector_norm(b)).item<double>();
}

TEST_F(AccumulationTest, wherever_memory_ends_the_gradient_is_the_whole_batchs) {
  make(configuration_of("mlp"));
  for (const std::vector<MicroBatchRun>& micro_batches :
       {std::vector<MicroBatchRun>{{96, 1}}, std::vector<MicroBatchRun>{{16, 2}, {64, 1}}}) {
    const std::int64_t needed = need(micro_batches);
    const LocalSums whole = accumulate(micro_batches);
    const at::Tensor expected = replica_->gradients.flat().clone();
    ASSERT_EQ(whole.out_of_memory_events, 0);
    const std::int64_t held = budget().current_bytes();
    int struck = 0;
    int in_backward = 0;
    for (int percent = 99; percent >= 30; --percent) {
      std::map<std::size_t, int> heard;
      bool last = false;
      replica_->gradients.set_listener([&](std::size_t index) { heard[index] += last ? 1 : 0; });
      budget().set_limit_bytes(held + needed * percent / 100);
      replica_->gradients.begin_step();
      const LocalSums sums = accumulate_gradient(*runner_, *data_, samples_, micro_batches, 3,
                                                 {.told = {[&] { last = true; }, {}}, .split_on_out_of_memory = true});
      budget().set_limit_bytes(MemoryBudget::k_no_limit);
      replica_->gradients.set_listener(nullptr);
      struck += sums.out_of_memory_events > 0 ? 1 : 0;
      ASSERT_LE(relative(replica_->gradients.flat(), expected), 1e-14) << percent << " % of the memory";
      ASSERT_NEAR(sums.loss, whole.loss, 1e-12 * whole.loss);
      ASSERT_EQ(sums.weight.value(), whole.weight.value());
      ASSERT_EQ(budget().current_bytes(), held) << "nothing is left behind";
      for (std::size_t i = 0; i < replica_->gradients.parameters().size(); ++i)
        ASSERT_EQ(heard[i], 1) << "parameter " << i << " is final once";
      in_backward += sums.out_of_memory_events == 1 ? 1 : 0;
    }
    EXPECT_GT(struck, 40);
    EXPECT_GT(in_backward, 5);
  }
}

// Their gradients arrive in the parameters, and become wider beside them: memory may end there as well.
TEST_F(AccumulationTest, short_parameters_count_a_gradient_once_wherever_memory_ends) {
  Configuration c = configuration_of("mlp");
  c.model.hidden = {512, 512};
  c.precision.parameters = c.precision.compute = Precision::bfloat16;
  make(c);
  const std::vector<MicroBatchRun> micro_batches = {{96, 1}};
  const std::int64_t needed = need(micro_batches);
  accumulate(micro_batches);
  const at::Tensor expected = replica_->gradients.flat().clone();
  const std::int64_t held = budget().current_bytes();
  int struck = 0;
  for (int percent = 99; percent >= 85; --percent) {
    budget().set_limit_bytes(held + needed * percent / 100);
    struck += accumulate(micro_batches).out_of_memory_events > 0 ? 1 : 0;
    budget().set_limit_bytes(MemoryBudget::k_no_limit);
    ASSERT_LE(relative(replica_->gradients.flat(), expected), 2e-2) << percent << " % of the memory";
    ASSERT_EQ(budget().current_bytes(), held) << "nothing is left behind";
  }
  EXPECT_GT(struck, 10);
}

TEST_F(AccumulationTest, a_played_device_takes_the_times_it_was_given) {
  for (const BatchNormMode mode : {BatchNormMode::local, BatchNormMode::sync, BatchNormMode::exact}) {
    Configuration c = configuration_of("resnet");
    c.batch_norm.mode = mode;
    make(c, {.memory_bytes = 0, .slowdown = 2.0, .changes = {}, .step_seconds = {{1, 0.1}, {32, 0.2}, {64, 0.3}}});
    double least = std::numeric_limits<double>::infinity();
    // A busy machine may hold up any one of them.
    for (int i = 0; i < 20 && least > 1.5; ++i) least = std::min(least, accumulate({{48, 2}}).compute_seconds);
    EXPECT_GE(least, 2 * 2 * 0.25) << static_cast<int>(mode);
    EXPECT_LE(least, 1.5) << static_cast<int>(mode);
  }
}

// Graphs that hold memory and are never started.
class Ballast final : public DeviceGraphs {
 public:
  explicit Ballast(std::int64_t bytes) : bytes_(bytes) {}
  std::vector<std::unique_ptr<DeviceGraph>> record(const std::function<void(const Cut&)>& /*work*/) override {
    auto held = std::make_unique<Held>();
    held->tensor = at::empty({bytes_}, at::kByte);
    std::vector<std::unique_ptr<DeviceGraph>> made;
    made.push_back(std::move(held));
    return made;
  }

 private:
  struct Held final : DeviceGraph {
    void replay() override { FAIL(); }
    at::Tensor tensor;
  };
  std::int64_t bytes_;
};

TEST_F(AccumulationTest, graphs_give_way_to_a_micro_batch) {
  const std::vector<MicroBatchRun> micro_batches = {{16, 2}, {64, 1}};
  make(configuration_of("mlp"));
  const std::int64_t needed = need(micro_batches);
  const LocalSums whole = accumulate(micro_batches);
  const at::Tensor expected = replica_->gradients.flat().clone();
  StepGraphs graphs(*replica_, std::make_unique<Ballast>(needed * 2 / 5));
  budget().set_limit_bytes(budget().current_bytes() + needed * 6 / 5);
  replica_->gradients.begin_step();
  const LocalSums sums = accumulate_gradient(*runner_, *data_, samples_, micro_batches, 3,
                                             {.told = {}, .split_on_out_of_memory = true, .graphs = &graphs});
  EXPECT_FALSE(graphs.is_holding());
  EXPECT_EQ(graphs.take_news().given_up, "a micro-batch ran out of memory beside them");
  EXPECT_EQ(sums.out_of_memory_events, 0);
  EXPECT_LE(relative(replica_->gradients.flat(), expected), 1e-14);
  EXPECT_NEAR(sums.loss, whole.loss, 1e-12 * whole.loss);
  EXPECT_EQ(sums.weight.value(), whole.weight.value());
}

TEST_F(AccumulationTest, graphs_give_way_to_a_round_which_is_made_again) {
  const std::vector<MicroBatchRun> micro_batches = {{48, 2}};
  Configuration c = configuration_of("resnet");
  c.batch_norm.mode = BatchNormMode::exact;
  make(c);
  const std::int64_t needed = need(micro_batches);
  StepGraphs graphs(*replica_, std::make_unique<Ballast>(needed * 2 / 5));
  const auto step = [&] {
    replica_->gradients.begin_step();
    accumulate_gradient(*runner_, *data_, samples_, micro_batches, 3,
                        {.told = {}, .split_on_out_of_memory = true, .graphs = &graphs});
    return replica_->gradients.flat().clone();
  };
  const at::Tensor expected = step();
  step();
  EXPECT_TRUE(graphs.is_holding());
  budget().set_limit_bytes(budget().current_bytes() - (needed * 2 / 5) + (needed * 6 / 5));
  try {
    step();
    ADD_FAILURE() << "it did fit";
  } catch (const MicroBatchDoesNotFit& error) {
    EXPECT_EQ(error.size(), MicroBatchDoesNotFit::k_beside_graphs);
  }
  EXPECT_EQ(graphs.take_news().given_up, "a micro-batch ran out of memory beside them");
  EXPECT_FALSE(graphs.is_holding());
  EXPECT_TRUE(step().equal(expected));
}

TEST_F(AccumulationTest, a_probe_gets_the_error_itself) {
  make(configuration_of("mlp"));
  const std::int64_t needed = need({{96, 1}});
  budget().set_limit_bytes(budget().current_bytes() + needed / 2);
  try {
    accumulate({{96, 1}}, false);
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_TRUE(is_out_of_memory(error));
  }
}

TEST_F(AccumulationTest, batch_statistics_are_not_split) {
  make(configuration_of("resnet"));
  const std::int64_t needed = need({{96, 1}});
  budget().set_limit_bytes(budget().current_bytes() + needed / 2);
  try {
    accumulate({{96, 1}});
    FAIL();
  } catch (const MicroBatchDoesNotFit& error) {
    EXPECT_EQ(error.size(), 96);
  }
}

TEST_F(AccumulationTest, frozen_batch_statistics_are) {
  Configuration c = configuration_of("resnet");
  c.batch_norm.frozen = true;
  make(c);
  const std::int64_t needed = need({{96, 1}});
  accumulate({{96, 1}});
  const at::Tensor expected = replica_->gradients.flat().clone();
  budget().set_limit_bytes(budget().current_bytes() + needed / 2);
  const LocalSums sums = accumulate({{96, 1}});
  EXPECT_GE(sums.out_of_memory_events, 1);
  EXPECT_GE(sums.failed_size, 24);
  EXPECT_LE(relative(replica_->gradients.flat(), expected), 1e-13);
}

TEST_F(AccumulationTest, where_not_one_sample_fits_that_is_said) {
  make(configuration_of("mlp"));
  replica_->gradients.begin_step();
  budget().set_limit_bytes(budget().current_bytes() + 64);
  EXPECT_THROW(accumulate({{96, 1}}), DoesNotFitError);
}

}  // namespace
}  // namespace onebatch
