// What verify judges by: what is no number, how large a tolerance may be, what so many sums round, and what an
// optimizer is to do.
#include "trainer/run/verify.hpp"
#include "trainer/device/compute_device.hpp"
#include "trainer/step/graph_step.hpp"
#include "trainer/verify/expected_update.hpp"
#include "trainer/verify/judgement.hpp"
#include "trainer/verify/reference_buffers.hpp"
#include "trainer/verify/sensitivity.hpp"

#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace onebatch {
namespace {

constexpr double k_float32 = 0x1p-24;
constexpr double k_nan = std::numeric_limits<double>::quiet_NaN();

double none() {
  return 0.0;
}

Gradient one(double a, double b) {
  return {{"w", at::tensor({a, b}, at::kDouble)}};
}

TEST(DifferenceTest, what_is_no_number_is_never_within) {
  for (const double bad : {k_nan, HUGE_VAL, -HUGE_VAL}) {
    EXPECT_FALSE(is_within(difference_of(one(bad, 1.0), one(1.0, 1.0)).relative_l2, 1e9)) << bad;
    EXPECT_FALSE(is_within(difference_of(one(1.0, 1.0), one(bad, 1.0)).relative_l2, 1e9)) << bad;
    EXPECT_FALSE(is_within(difference_of(one(bad, 1.0), one(bad, 1.0)).relative_l2, 1e9)) << bad;
    EXPECT_FALSE(is_within(difference_of(one(bad, 1.0), one(1.0, 1.0)).max_abs, 1e9)) << bad;
  }
  EXPECT_NEAR(difference_of(one(3.0, 4.5), one(3.0, 4.0)).relative_l2, 0.1, 1e-15);
  EXPECT_FALSE(is_within(difference_of(one(1e-300, 0.0), one(0.0, 0.0)).relative_l2, 1e9))
      << "something where nothing is expected";
}

TEST(DifferenceTest, a_later_parameter_hides_nothing) {
  const NamedTensor number = one(1.0, 1.0).front();
  const Difference found = difference_of({one(k_nan, 1.0).front(), number}, {number, number});
  EXPECT_FALSE(is_within(found.max_abs, 1e9));
  EXPECT_FALSE(is_within(found.relative_l2, 1e9));
}

TEST(DifferenceTest, the_last_element_of_a_large_tensor_counts) {
  for (const std::int64_t elements : {1, 1 << 20, (1 << 20) + 1}) {
    const at::Tensor expected = at::ones({elements}, at::kDouble);
    const at::Tensor found = expected.clone();
    found[-1].fill_(3.0);
    const Difference difference = difference_of(found, expected);
    EXPECT_EQ(difference.max_abs, 2.0) << elements;
    EXPECT_NEAR(difference.relative_l2, 2.0 / std::sqrt(static_cast<double>(elements)), 1e-12) << elements;
  }
  EXPECT_EQ(difference_of(at::ones({0}, at::kDouble), at::ones({0}, at::kDouble)).relative_l2, 0.0);
}

TEST(JudgementTest, twice_the_own_error_passes_and_no_more) {
  EXPECT_EQ(judge(1.9e-3, 1e-3, k_float32, none).verdict, Verdict::pass);
  EXPECT_EQ(judge(2.1e-3, 1e-3, k_float32, none).verdict, Verdict::fail);
  EXPECT_EQ(judge(1.9e-6, 0.0, k_float32, none).verdict, Verdict::pass);
  EXPECT_EQ(judge(1e-12, 0.0, 0x1p-53, none).verdict, Verdict::pass);
  EXPECT_EQ(judge(1e-11, 0.0, 0x1p-53, none).verdict, Verdict::fail);
}

TEST(JudgementTest, a_reference_that_is_far_off_itself_judges_nothing) {
  for (const double own : {0.011, 0.3, 3.27, k_nan}) {
    EXPECT_EQ(judge(0.0, own, k_float32, none).verdict, Verdict::cannot_judge) << own;
    EXPECT_NE(judge(own, own, k_float32, none).verdict, Verdict::pass) << own;
    EXPECT_EQ(judge_number(0.0, own, k_float32).verdict, Verdict::cannot_judge) << own;
  }
  EXPECT_EQ(judge(k_nan, 0.3, k_float32, none).verdict, Verdict::fail);
  EXPECT_EQ(judge(k_nan, 1e-7, k_float32, none).verdict, Verdict::fail);
  EXPECT_EQ(judge_number(k_nan, 0.0, k_float32).verdict, Verdict::fail);
}

TEST(JudgementTest, the_number_of_sums_is_asked_for_where_it_matters) {
  EXPECT_EQ(judge(3.7e-6, 1e-7, k_float32, [] { return 1.5e-5; }).verdict, Verdict::pass);
  EXPECT_EQ(judge(3.7e-6, 1e-7, k_float32, [] { return 1e-8; }).verdict, Verdict::fail);
  EXPECT_EQ(judge(0.05, 1e-7, k_float32, [] { return 1.0; }).verdict, Verdict::cannot_judge)
      << "nothing is judged by sums that round as much";
  judge(1e-7, 1e-7, k_float32, []() -> double { throw std::logic_error("not needed"); });
}

TEST(BufferDifferenceTest, infinities_are_values_and_whole_numbers_are_exact) {
  const std::vector<NamedTensor> mask = {{"mask", at::tensor({0.0, -HUGE_VAL}, at::kDouble)}};
  EXPECT_EQ(difference_of_buffers(mask, mask).relative_l2, 0.0);
  EXPECT_EQ(difference_of_buffers({{"mask", at::tensor({0.0, k_nan}, at::kDouble)}}, mask).worst, "mask");
  EXPECT_EQ(difference_of_buffers({{"mask", at::tensor({0.0, HUGE_VAL}, at::kDouble)}}, mask).relative_l2, HUGE_VAL);
  const std::vector<NamedTensor> count = {{"bn.num_batches_tracked", at::tensor({7}, at::kLong)}};
  const std::vector<NamedTensor> more = {{"bn.num_batches_tracked", at::tensor({8}, at::kLong)}};
  EXPECT_EQ(difference_of_buffers(more, count).relative_l2, HUGE_VAL);
  EXPECT_EQ(difference_of_buffers(more, count, {"bn.num_batches_tracked"}).relative_l2, 0.0);
}

// A small network and as many samples as it takes.
class Bench {
 public:
  explicit Bench(const std::function<void(Configuration&)>& change = [](Configuration&) {})
      : configuration_(changed(change)),
        data_(open_dataset(configuration_.data.train, Split::train, 1)),
        device_(bound()) {
    replica_ = std::make_unique<Replica>(configuration_, *data_, *device_);
  }
  [[nodiscard]] ReferenceParts parts() const {
    return {configuration_, *data_, *replica_, choose_runner(configuration_, *replica_).apart() != nullptr};
  }
  [[nodiscard]] ReferenceModel model(at::ScalarType type) const {
    return {parts(), {c10::Device(c10::kCPU), type, BatchNorms::as_configured}, weights_of(*replica_->model)};
  }
  Replica& replica() { return *replica_; }
  [[nodiscard]] const Dataset& data() const { return *data_; }
  [[nodiscard]] const Configuration& configuration() const { return configuration_; }

 private:
  static Configuration changed(const std::function<void(Configuration&)>& change) {
    Configuration c;
    c.data.train.kind = "synthetic";
    c.data.train.shape = {6};
    c.data.train.size = 24576;
    c.model.hidden = {4};
    c.batch.global_batch_size = 16;
    change(c);
    return c;
  }
  static std::unique_ptr<ComputeDevice> bound() {
    DeviceRequest request;
    request.simulate = {SimulatedDevice{}};
    return bind_device(request);
  }

  Configuration configuration_;
  std::unique_ptr<Dataset> data_;
  std::unique_ptr<ComputeDevice> device_;
  std::unique_ptr<Replica> replica_;
};

// The first hidden unit's input for sample 0 becomes `distance`, the rest stays.
void move_to_kink(Replica& replica, const Dataset& data, double distance) {
  const at::NoGradGuard no_grad;
  const auto parameters = replica.model->parameters();
  const at::Tensor weight = parameters.at(0).tensor;
  const at::Tensor bias = parameters.at(1).tensor;
  const std::vector<std::int64_t> first = {0};
  const at::Tensor x = data.read(first, at::kDouble).inputs.at(0).to(at::kDouble);
  bias[0].fill_(0.0);
  bias[0].fill_(distance - weight[0].to(at::kDouble).dot(x.flatten()).item<double>());
}

// Whether the gradient at `ours` is found beside the one at `exact`, both of them distances from the kink.
std::optional<Neighbour> found_beside(double ours, double exact, double factor = 1.0) {
  Bench bench([](Configuration& c) { c.precision.compute = c.precision.parameters = Precision::float64; });
  const Group samples = {0, 1, 2, 3, 4, 5, 6, 7};
  move_to_kink(bench.replica(), bench.data(), ours);
  Gradient gradient = bench.model(at::kDouble).gradient_of({samples}, 0).gradient;
  for (NamedTensor& one : gradient) one.tensor = one.tensor.mul(factor);
  move_to_kink(bench.replica(), bench.data(), exact);
  ReferenceModel model = bench.model(at::kDouble);
  const Weights weights = weights_of(*bench.replica().model);
  const Gradient wanted = model.gradient_of({samples}, 0).gradient;
  const auto found = neighbour_with({weights, samples, 0, k_float32, 1e-5}, model, gradient, wanted);
  EXPECT_EQ(difference_of(model.gradient_of({samples}, 0).gradient, wanted).relative_l2, 0.0) << "weights are put back";
  return found;
}

TEST(SensitivityTest, the_other_side_of_a_kink_is_found_within_rounding_and_not_beyond) {
  const auto over = found_beside(1e-9, -1e-9);
  ASSERT_TRUE(over);
  EXPECT_GT(over->jump, 1e-3);
  EXPECT_LT(over->apart, 1e-5);
  EXPECT_TRUE(found_beside(-1e-9, 1e-9));
  EXPECT_FALSE(found_beside(1e-3, -1e-3));
  EXPECT_FALSE(found_beside(1e-9, -1e-9, 1.001)) << "a wrong gradient beside a kink is none of its sides";
}

// As many gradients as samples, summed one by one in float32 and in float64.
TEST(RoundingOfSumsTest, predicts_what_thousands_of_float32_sums_round) {
  const Bench bench;
  std::vector<Group> groups(24576);
  for (std::size_t i = 0; i < groups.size(); ++i) groups[i] = {static_cast<std::int64_t>(i)};
  ReferenceModel exact = bench.model(at::kDouble);
  const Gradient in_float64 = exact.gradient_of(groups, 0).gradient;
  const double error = difference_of(bench.model(at::kFloat).gradient_of(groups, 0).gradient, in_float64).relative_l2;
  const double predicted = rounding_of_sums(exact, groups, 0, k_float32);
  EXPECT_GT(error, 33.0 * k_float32) << "what the test is about";
  EXPECT_LE(error, 4.0 * predicted);
  EXPECT_GE(error, predicted / 25.0);
}

class UpdateTest : public testing::TestWithParam<std::string> {
 protected:
  static void configure(Configuration& c) {
    c.optimizer.kind = GetParam();
    c.optimizer.weight_decay = 0.1;
    c.optimizer.momentum = GetParam() == "sgd" ? 0.9 : 0.0;
    c.optimizer.nesterov = GetParam() == "sgd";
    c.optimizer.lr = 0.02;
    c.optimizer.ema_decay = 0.9;
    ParameterGroup group;
    group.match = "*.bias";
    group.weight_decay = 0.0;
    group.lr = 0.005;
    c.optimizer.groups = {group};
  }

  // Two steps with a gradient by chance; the difference after the second.
  static ExpectedUpdate::Result second_step(Bench& bench, const std::function<void(Replica&)>& afterwards) {
    Replica& replica = bench.replica();
    average_.reset();
    const std::vector<double> touched(replica.gradients.parameters().size(), 1.0);
    std::optional<ExpectedUpdate> update;
    Gradient gradient;
    for (int i = 0; i < 2; ++i) {
      gradient.clear();
      for (std::size_t k = 0; k < touched.size(); ++k) {
        replica.gradients.views()[k].copy_(at::randn(replica.gradients.views()[k].sizes()));
        gradient.push_back({replica.gradients.parameters()[k].name, as_numbers(replica.gradients.views()[k])});
      }
      update.emplace(bench.configuration(), replica);
      replica.optimizer.step(0.01, touched);
    }
    afterwards(replica);
    average_ = update->compare_average();
    return update->compare(gradient, {}, 0.01);
  }
  static inline std::optional<ExpectedUpdate::Result> average_;
};

TEST_P(UpdateTest, the_optimizers_steps_are_the_formulas) {
  Bench bench(configure);
  const ExpectedUpdate::Result found = second_step(bench, [](Replica&) {});
  EXPECT_LE(found.relative_l2, found.tolerance);
  EXPECT_LT(found.tolerance, 1e-2);
}

TEST_P(UpdateTest, elements_that_changed_places_are_found) {
  Bench bench(configure);
  const ExpectedUpdate::Result found = second_step(bench, [](Replica& replica) {
    const at::Tensor weight = replica.gradients.parameters().front().tensor.detach();
    weight.copy_(weight.clone().flip(0));
  });
  EXPECT_GT(found.relative_l2, 2.0 * found.tolerance);
  EXPECT_EQ(found.worst, "layer0.weight");
}

TEST_P(UpdateTest, the_last_element_of_a_large_layer_counts) {
  Bench bench([](Configuration& c) {
    configure(c);
    c.model.hidden = {200000};
  });
  const ExpectedUpdate::Result right = second_step(bench, [](Replica&) {});
  EXPECT_LE(right.relative_l2, right.tolerance);
  const ExpectedUpdate::Result found = second_step(bench, [](Replica& replica) {
    replica.gradients.parameters().front().tensor.detach().flatten()[-1].add_(100.0);
  });
  EXPECT_GT(found.relative_l2, 2.0 * found.tolerance);
  EXPECT_EQ(found.worst, "layer0.weight");
}

TEST_P(UpdateTest, the_average_is_the_formula) {
  Bench bench(configure);
  second_step(bench, [](Replica&) {});
  ASSERT_TRUE(average_.has_value());
  EXPECT_LE(average_->relative_l2, average_->tolerance);
  EXPECT_LT(average_->tolerance, 1e-2);
}

TEST_P(UpdateTest, an_average_that_was_begun_anew_is_found) {
  Bench bench(configure);
  second_step(bench, [](Replica& replica) { replica.optimizer.average()->begin(); });
  ASSERT_TRUE(average_.has_value());
  EXPECT_GT(average_->relative_l2, 2.0 * average_->tolerance);
}

TEST(HostTest, that_cannot_hold_five_copies_is_too_small) {
  Bench bench;
  const Model& model = *bench.replica().model;
  std::int64_t numbers = 0;
  for (const NamedTensor& one : model.parameters()) numbers += one.tensor.numel();
  EXPECT_EQ(why_host_is_too_small(model, numbers * 40), "");
  EXPECT_NE(why_host_is_too_small(model, numbers * 40 - 1).find("0.0 GiB are free"), std::string::npos);
  for (const NamedTensor& one : model.parameters()) at::Tensor(one.tensor).requires_grad_(false);
  EXPECT_EQ(why_host_is_too_small(model, numbers * 8), "") << "what is frozen has no gradients";
}

INSTANTIATE_TEST_SUITE_P(Kinds, UpdateTest, testing::Values("sgd", "adam", "adamw"));

}  // namespace
}  // namespace onebatch
