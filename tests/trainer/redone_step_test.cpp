// A step that ran out of memory under BatchNorm in training: discarded, and done again it is the step of a run that was
// planned so from the start.
#include "tests/trainer/stepped_replica.hpp"
#include "trainer/device/memory_budget.hpp"

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

namespace onebatch {
namespace {

constexpr std::int64_t k_batch = 96;

Plan plan_of(std::int64_t size) {
  Plan plan;
  plan.global_batch_size = k_batch;
  RankPlan rank;
  rank.samples = k_batch;
  rank.micro_batches = {{size, k_batch / size}};
  plan.ranks = {rank};
  return plan;
}

class Trainee : public testing::SteppedReplica {
 public:
  Trainee() : SteppedReplica(configuration(), {1.0, {}}) {}

  StepTotals step(const Plan& plan, std::int64_t number) {
    return steps().run({.global_batch = samples_, .plan = plan, .lr = 0.1, .step = number});
  }

 private:
  static Configuration configuration() {
    Configuration c = testing::small_resnet(k_batch);
    c.precision.parameters = c.precision.compute = Precision::float64;
    return c;
  }

  std::vector<std::int64_t> samples_ = samples(k_batch);
};

TEST(RedoneStepTest, equals_that_of_a_run_planned_so_from_the_start) {
  MemoryBudget& budget = MemoryBudget::install();
  const Plan whole = plan_of(k_batch);
  const Plan quarters = plan_of(k_batch / 4);
  Trainee surprised;
  Trainee planned;
  surprised.step(whole, 0);
  planned.step(whole, 0);

  // What two micro-batches of a half would need is there, what the whole needs is not.
  const std::int64_t held = budget.current_bytes();
  budget.reset_peak();
  const ReplicaSnapshot before(surprised.replica());
  surprised.step(plan_of(k_batch / 2), 1);
  before.restore(surprised.replica());
  const std::int64_t enough = budget.peak_bytes() - held;
  budget.set_limit_bytes(budget.current_bytes() + enough + enough / 8);

  const Digest untouched = digest_of(surprised.replica());
  const StepTotals failed = surprised.step(whole, 1);
  EXPECT_TRUE(failed.discarded);
  EXPECT_EQ(failed.out_of_memory_events, 1);
  EXPECT_EQ(digest_of(surprised.replica()), untouched) << "weights, momentum and running statistics are as they were";

  const StepTotals again = surprised.step(quarters, 1);
  budget.set_limit_bytes(MemoryBudget::k_no_limit);
  const StepTotals expected = planned.step(quarters, 1);
  EXPECT_FALSE(again.discarded);
  EXPECT_EQ(again.loss_sum, expected.loss_sum);
  EXPECT_EQ(again.weight, expected.weight);
  EXPECT_EQ(again.grad_norm, expected.grad_norm);
  EXPECT_TRUE(at::equal(surprised.replica().gradients.flat(), planned.replica().gradients.flat()));
  EXPECT_EQ(digest_of(surprised.replica()), digest_of(planned.replica())) << "running statistics included";
}

}  // namespace
}  // namespace onebatch
