// Steps whose figures are read when the next was made are the steps of a run that reads at once; and from a gradient
// that is not finite on nothing is updated, though nobody has looked yet.
#include "tests/trainer/stepped_replica.hpp"
#include "trainer/optim/optimizer.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace onebatch {
namespace {

constexpr std::int64_t k_batch = 24;
constexpr double k_infinity = std::numeric_limits<double>::infinity();

class LateFiguresTest : public ::testing::TestWithParam<const char*> {};

class Trainee : public testing::SteppedReplica {
 public:
  explicit Trainee(const std::string& optimizer, std::optional<double> max_norm = {})
      : SteppedReplica(configuration_of(optimizer), {max_norm, {}}) {
    plan_.global_batch_size = k_batch;
    plan_.ranks.resize(1);
    plan_.ranks[0].samples = k_batch;
    plan_.ranks[0].micro_batches = {{6, 4}};
  }

  StepTotals step(std::int64_t number, bool may_be_late) {
    return steps().run(
        {.global_batch = samples_, .plan = plan_, .lr = 0.05, .step = number, .may_be_late = may_be_late});
  }
  // One weight, so that each gradient from here on is no number. Returns what it was.
  at::Tensor spoil() {
    at::Tensor before = a_weight().clone();
    a_weight().fill_(k_infinity);
    return before;
  }
  void unspoil(const at::Tensor& before) { a_weight().copy_(before); }

 private:
  at::Tensor a_weight() { return replica().model->parameters().front().tensor.detach().view({-1}).narrow(0, 0, 1); }
  static Configuration configuration_of(const std::string& optimizer) {
    Configuration c = testing::small_resnet(k_batch);
    c.optimizer.kind = optimizer;
    c.optimizer.weight_decay = 0.01;
    return c;
  }

  std::vector<std::int64_t> samples_ = samples(k_batch);
  Plan plan_;
};

TEST_P(LateFiguresTest, are_those_that_are_read_at_once) {
  Trainee late(GetParam());
  Trainee at_once(GetParam());
  std::vector<StepTotals> left;
  std::vector<StepTotals> read;
  for (std::int64_t number = 0; number < 4; ++number) {
    left.push_back(late.step(number, true));
    EXPECT_TRUE(left.back().is_late);
    if (number > 0) late.steps().settle(left[left.size() - 2]);
    read.push_back(at_once.step(number, false));
    EXPECT_FALSE(read.back().is_late);
  }
  late.steps().settle(left.back());
  for (std::size_t i = 0; i < left.size(); ++i) {
    EXPECT_FALSE(left[i].is_late);
    EXPECT_FALSE(left[i].overflowed);
    EXPECT_EQ(left[i].loss_sum, read[i].loss_sum);
    EXPECT_EQ(left[i].grad_norm, read[i].grad_norm);
    EXPECT_EQ(left[i].weight, read[i].weight);
    EXPECT_EQ(left[i].compute_seconds.size(), 1U);
    EXPECT_GT(left[i].compute_seconds[0], 0.0);
  }
  EXPECT_EQ(late.digest(), at_once.digest()) << "weights, optimizer and running statistics";
}

TEST_P(LateFiguresTest, nothing_is_updated_after_a_gradient_that_is_not_finite) {
  Trainee one(GetParam());
  StepTotals good = one.step(0, true);
  one.steps().settle(good);
  one.spoil();
  const Digest before = one.digest();
  StepTotals bad = one.step(1, true);
  const StepTotals next = one.step(2, true);
  EXPECT_TRUE(next.is_late);
  one.steps().settle(bad);
  EXPECT_TRUE(bad.overflowed);
  one.steps().forget_late(1);
  EXPECT_EQ(one.digest(), before);
  // Done again it is read at once, and says the same.
  const StepTotals again = one.step(1, false);
  EXPECT_TRUE(again.overflowed);
  EXPECT_FALSE(again.can_go_on);
  EXPECT_EQ(one.digest(), before);
}

TEST_P(LateFiguresTest, after_a_step_that_was_no_step_training_goes_on) {
  Trainee spoiled(GetParam());
  Trainee whole(GetParam());
  for (Trainee* one : {&spoiled, &whole}) one->step(0, false);
  const at::Tensor weight = spoiled.spoil();
  StepTotals bad = spoiled.step(1, true);
  spoiled.steps().settle(bad);
  EXPECT_TRUE(bad.overflowed);
  spoiled.steps().forget_late(1);
  spoiled.unspoil(weight);
  for (Trainee* one : {&spoiled, &whole}) {
    StepTotals totals = one->step(1, true);
    one->steps().settle(totals);
    EXPECT_FALSE(totals.overflowed);
  }
  EXPECT_EQ(spoiled.digest(), whole.digest());
}

TEST_P(LateFiguresTest, are_not_late_where_the_norm_clips) {
  Trainee one(GetParam(), 1.0);
  EXPECT_FALSE(one.step(0, true).is_late);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, LateFiguresTest, ::testing::Values("sgd", "adam", "adamw"),
                         [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace onebatch
