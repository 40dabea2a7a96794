#include "trainer/models/loss.hpp"

#include "trainer/base/error.hpp"

#include <ATen/core/Reduction.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>

namespace onebatch {
namespace {

const std::vector<double> k_logits = {1.0, 2.0, 0.5, -1.0, 0.0, 3.0};

at::Tensor outputs() {
  return at::tensor(k_logits, at::TensorOptions().dtype(at::kDouble)).view({2, 3});
}
at::Tensor labels(std::vector<std::int64_t> values) {
  return at::tensor(values, at::TensorOptions().dtype(at::kLong));
}

double negative_log_softmax(std::size_t row, std::size_t label) {
  double sum = 0.0;
  for (std::size_t i = 0; i < 3; ++i) sum += std::exp(k_logits[row * 3 + i]);
  return std::log(sum) - k_logits[row * 3 + label];
}

TEST(LossTest, cross_entropy_is_a_sum_with_its_weight) {
  const Loss loss({}, 3);
  EXPECT_NEAR(loss.sum(outputs(), labels({1, 2})).item<double>(),
              negative_log_softmax(0, 1) + negative_log_softmax(1, 2), 1e-14);
  EXPECT_DOUBLE_EQ(loss.weight(labels({1, 2})), 2.0);
}

TEST(LossTest, ignored_labels_weigh_nothing) {
  const Loss loss({}, 3);
  EXPECT_NEAR(loss.sum(outputs(), labels({-100, 2})).item<double>(), negative_log_softmax(1, 2), 1e-14);
  EXPECT_DOUBLE_EQ(loss.weight(labels({-100, 2})), 1.0);
  EXPECT_DOUBLE_EQ(loss.weight(labels({-100, -100})), 0.0);
}

TEST(LossTest, class_weights_that_are_placed_are_those_that_are_copied_each_time) {
  LossConfiguration configuration;
  configuration.class_weights = {1.0, 0.1, 4.0};
  Loss loss(configuration, 3);
  const auto in = [&](at::ScalarType type) { return loss.sum(outputs().to(type), labels({1, 2})).item<double>(); };
  const double in_float64 = in(at::kDouble);
  const double in_float32 = in(at::kFloat);
  EXPECT_EQ(loss.constants().size(), 1U);
  loss.place(c10::kCPU, at::kFloat);
  EXPECT_EQ(loss.constants().size(), 2U);
  EXPECT_EQ(in(at::kDouble), in_float64);
  EXPECT_EQ(in(at::kFloat), in_float32);
}

TEST(LossTest, class_weights_weigh_loss_and_batch_alike) {
  LossConfiguration configuration;
  configuration.class_weights = {1.0, 0.5, 4.0};
  const Loss loss(configuration, 3);
  EXPECT_NEAR(loss.sum(outputs(), labels({1, 2})).item<double>(),
              0.5 * negative_log_softmax(0, 1) + 4.0 * negative_log_softmax(1, 2), 1e-14);
  EXPECT_DOUBLE_EQ(loss.weight(labels({1, 2})), 4.5);
  EXPECT_THROW(Loss(configuration, 4), UserError);
}

TEST(LossTest, tokens_weigh_by_themselves) {
  const Loss loss({}, 3);
  const at::Tensor tokens = labels({1, 2, -100, 0}).view({2, 2});
  const at::Tensor weights = at::tensor({0.5, 2.0, 7.0, 1.0}, at::kDouble).view({2, 2});
  const at::Tensor last = at::cat({outputs(), outputs()}).view({2, 2, 3});
  const double expected =
      0.5 * negative_log_softmax(0, 1) + 2.0 * negative_log_softmax(1, 2) + negative_log_softmax(1, 0);
  EXPECT_NEAR(loss.sum(last, tokens, weights).item<double>(), expected, 1e-14);
  EXPECT_NEAR(loss.sum(last.movedim(2, 1), tokens, weights).item<double>(), expected, 1e-14) << "classes second";
  EXPECT_NEAR(loss.sum(last.flatten(0, 1), tokens, weights).item<double>(), expected, 1e-14)
      << "flattened by the model";
  EXPECT_DOUBLE_EQ(loss.weight(tokens, weights), 3.5);
  EXPECT_DOUBLE_EQ(loss.count_correct(last, tokens).counted, 3.0);
  EXPECT_THROW(static_cast<void>(loss.sum(outputs(), tokens)), UserError);
}

TEST(LossTest, samples_count_where_a_label_of_theirs_does) {
  LossConfiguration configuration;
  configuration.normalize_by = NormalizeBy::samples;
  const at::Tensor tokens = labels({1, 2, -100, 0, -100, -100}).view({3, 2});
  EXPECT_DOUBLE_EQ(Loss(configuration, 3).weight(tokens), 2.0);
}

TEST(LossTest, more_classes_than_outputs_is_the_users_to_mend) {
  EXPECT_THROW(static_cast<void>(Loss({}, 4).sum(outputs(), labels({1, 2}))), UserError);
}

TEST(LossTest, class_weights_have_to_be_as_many_as_outputs) {
  LossConfiguration configuration;
  configuration.class_weights = {1.0, 0.5};
  try {
    static_cast<void>(Loss(configuration, 2).sum(outputs(), labels({1, 0})));
    FAIL() << "2 weights for 3 outputs";
  } catch (const UserError& error) {
    EXPECT_STREQ(
        error.what(),
        "the model returns 3 outputs per label and loss.class_weights has 2: write model.num_classes = 3 and a "
        "weight for each");
  }
  EXPECT_NO_THROW(static_cast<void>(Loss({}, 2).sum(outputs(), labels({1, 0})))) << "without weights";
}

TEST(LossTest, a_label_without_a_class_is_the_users_to_mend) {
  EXPECT_THROW(static_cast<void>(Loss({}, 3).weight(labels({3}))), UserError);
  EXPECT_THROW(static_cast<void>(Loss({}, 3).weight(labels({-1}))), UserError);
}

TEST(LossTest, squared_error_is_a_sum_over_samples) {
  LossConfiguration configuration;
  configuration.kind = "mse";
  const Loss loss(configuration, 3);
  // One-hot targets {0,1,0} and {0,0,1}: squares 1+1+.25 and 1+0+4, each a mean over three outputs.
  EXPECT_NEAR(loss.sum(outputs(), labels({1, 2})).item<double>(), (2.25 + 5.0) / 3.0, 1e-14);
  EXPECT_FALSE(loss.is_classification());
}

// Sum over labels of logsumexp(classes) - own class, written out; `at(n, c, t)` is a logit.
template <typename Logit>
double summed(std::int64_t samples, std::int64_t classes, std::int64_t positions, const at::Tensor& targets,
              const Logit& at) {
  double sum = 0.0;
  for (std::int64_t n = 0; n < samples; ++n) {
    for (std::int64_t t = 0; t < positions; ++t) {
      double all = 0.0;
      for (std::int64_t c = 0; c < classes; ++c) all += std::exp(at(n, c, t));
      sum += std::log(all) - at(n, targets[n][t].template item<std::int64_t>(), t);
    }
  }
  return sum;
}

TEST(LossTest, where_the_classes_are_is_decided_once) {
  const at::Tensor logits = at::arange(18, at::kDouble).mul(0.7).sin().view({2, 3, 3});
  const at::Tensor targets = labels({1, 2, 0, 0, 1, 1}).view({2, 3});
  const auto value = [&](std::int64_t n, std::int64_t i, std::int64_t j) { return logits[n][i][j].item<double>(); };
  Loss second({}, 3);
  second.settle({{{4, 3, 3}, {4, 3}}, {{2, 3, 1}, {2, 1}}});
  EXPECT_NEAR(second.sum(logits, targets).item<double>(), summed(2, 3, 3, targets, value), 1e-13);
  Loss last({}, 3);
  last.settle({{{4, 7, 3}, {4, 7}}});
  const auto swapped = [&](std::int64_t n, std::int64_t c, std::int64_t t) { return value(n, t, c); };
  EXPECT_NEAR(last.sum(logits, targets).item<double>(), summed(2, 3, 3, targets, swapped), 1e-13);
  EXPECT_THROW(static_cast<void>(last.sum(at::zeros({2, 3, 5}), at::zeros({2, 5}, at::kLong))), UserError)
      << "classes second, of a sudden";
}

TEST(LossTest, shapes_that_fit_in_two_ways_are_refused) {
  Loss loss({}, 3);
  EXPECT_THROW(loss.settle({{{2, 3, 3}, {2, 3}}}), UserError);
  EXPECT_THROW(loss.settle({{{2, 3, 5}, {2, 5}}, {{2, 5, 3}, {2, 5}}}), UserError) << "and those that fit in none";
  EXPECT_THROW(static_cast<void>(loss.sum(at::zeros({2, 3, 3}), at::zeros({2, 3}, at::kLong))), UserError);
  EXPECT_NO_THROW(loss.settle({{{6, 3}, {2, 3}}}));
}

TEST(LossTest, where_the_classes_are_can_be_said) {
  const at::Tensor logits = at::arange(18, at::kDouble).mul(0.7).sin().view({2, 3, 3});
  const at::Tensor targets = labels({1, 2, 0, 0, 1, 1}).view({2, 3});
  LossConfiguration configuration;
  configuration.options["class_dim"] = std::string("last");
  Loss last(configuration, 3);
  last.settle({{{2, 3, 3}, {2, 3}}});
  const auto row = [&](std::int64_t n, std::int64_t c, std::int64_t t) { return logits[n][t][c].item<double>(); };
  EXPECT_NEAR(last.sum(logits, targets).item<double>(), summed(2, 3, 3, targets, row), 1e-13);
  EXPECT_NO_THROW(last.settle({{{6, 3}, {2, 3}}})) << "a row for each label is as it is";
  EXPECT_THROW(last.settle({{{2, 3, 5}, {2, 5}}}), UserError) << "said, and not so";
  configuration.options["class_dim"] = std::string("second");
  const Loss second(configuration, 3);
  const auto column = [&](std::int64_t n, std::int64_t c, std::int64_t t) { return logits[n][c][t].item<double>(); };
  EXPECT_NEAR(second.sum(logits, targets).item<double>(), summed(2, 3, 3, targets, column), 1e-13);
}

// What PyTorch makes of probabilities as targets, value and gradient.
TEST(LossTest, mixed_labels_are_probabilities) {
  for (const double smoothing : {0.0, 0.1}) {
    LossConfiguration configuration;
    configuration.label_smoothing = smoothing;
    const Loss loss(configuration, 3);
    const at::Tensor own = outputs().requires_grad_(true);
    const at::Tensor theirs = outputs().requires_grad_(true);
    const at::Tensor targets = labels({1, 0, 2, 2}).view({2, 2});
    const at::Tensor shares = at::tensor({0.3, 0.7, 0.25, 0.75}, at::kDouble).view({2, 2});
    const at::Tensor probabilities = at::tensor({0.7, 0.3, 0.0, 0.0, 0.0, 1.0}, at::kDouble).view({2, 3});
    const at::Tensor sum = loss.sum(own, targets, shares);
    const at::Tensor expected = at::cross_entropy_loss(theirs, probabilities, {}, at::Reduction::Sum, -100, smoothing);
    EXPECT_NEAR(sum.item<double>(), expected.item<double>(), 1e-14);
    sum.backward();
    expected.backward();
    EXPECT_LT(own.grad().sub(theirs.grad()).abs().max().item<double>(), 1e-15);
    EXPECT_DOUBLE_EQ(loss.weight(targets, shares), 2.0);
    EXPECT_THROW(static_cast<void>(loss.sum(own, targets)), UserError) << "labels without weights are no mixture";
  }
}

// Of the weighted mean over the whole batch, sum(w e^2) / sum(w): PyTorch's mse_loss with a weight.
TEST(LossTest, squared_errors_have_weights) {
  LossConfiguration configuration;
  configuration.kind = "mse";
  const Loss loss(configuration, 3);
  const at::Tensor made = at::tensor({1.0, 2.0, 4.0, 8.0}, at::kDouble).view({2, 2});
  const at::Tensor targets = at::tensor({0.0, 1.0, 1.0, 10.0}, at::kDouble).view({2, 2});
  const at::Tensor weights = at::tensor({0.5, 2.0, 1.0, 0.25}, at::kDouble).view({2, 2});
  EXPECT_NEAR(loss.sum(made, targets, weights).item<double>(), 0.5 * 1 + 2.0 * 1 + 1.0 * 9 + 0.25 * 4, 1e-14);
  EXPECT_DOUBLE_EQ(loss.weight(targets, weights), 3.75);
  double parts = 0.0;
  for (const std::int64_t n : {0, 1})
    parts += loss.sum(made.narrow(0, n, 1), targets.narrow(0, n, 1), weights.narrow(0, n, 1)).item<double>();
  EXPECT_NEAR(parts, 12.5, 1e-14) << "one by one";
  // One-hot: squares 1+1+.25 and 1+0+4, each a mean over three outputs.
  const at::Tensor of_labels = at::tensor({2.0, 0.5}, at::kDouble);
  EXPECT_NEAR(loss.sum(outputs(), labels({1, 2}), of_labels).item<double>(), (2.0 * 2.25 + 0.5 * 5.0) / 3.0, 1e-14);
  configuration.normalize_by = NormalizeBy::samples;
  const Loss by_samples(configuration, 3);
  EXPECT_NEAR(by_samples.sum(made, targets, at::ones_like(weights)).item<double>(),
              by_samples.sum(made, targets).item<double>(), 1e-14);
  EXPECT_NEAR(by_samples.sum(made, targets, weights).item<double>(), 12.5 / 2.0, 1e-14);
  EXPECT_DOUBLE_EQ(by_samples.weight(targets, weights), 2.0);
}

// Without the sample that weighs nothing the mean is PyTorch's over the others.
TEST(LossTest, squared_errors_by_samples_leave_skipped_ones_out) {
  LossConfiguration configuration;
  configuration.kind = "mse";
  configuration.normalize_by = NormalizeBy::samples;
  const Loss loss(configuration, 3);
  const at::Tensor made = at::tensor({1.0, 2.0, 4.0, 8.0, 5.0, 7.0}, at::kDouble).view({3, 2});
  const at::Tensor targets = at::tensor({0.0, 1.0, 9.0, 9.0, 1.0, 10.0}, at::kDouble).view({3, 2});
  const at::Tensor weights = at::tensor({1.0, 1.0, 0.0, 0.0, 1.0, 1.0}, at::kDouble).view({3, 2});
  const at::Tensor of_others =
      at::mse_loss(made.index_select(0, labels({0, 2})), targets.index_select(0, labels({0, 2})));
  EXPECT_NEAR(loss.sum(made, targets, weights).item<double>() / loss.weight(targets, weights), of_others.item<double>(),
              1e-14);
  EXPECT_DOUBLE_EQ(loss.weight(labels({1, 2}), at::tensor({0.0, 3.0}, at::kDouble)), 1.0) << "one-hot";
  EXPECT_DOUBLE_EQ(loss.weight(targets, at::zeros_like(weights)), 0.0);
}

TEST(LossTest, squared_errors_need_one_shape) {
  LossConfiguration configuration;
  configuration.kind = "mse";
  const Loss loss(configuration, 3);
  try {
    static_cast<void>(loss.sum(at::zeros({4, 1}), at::zeros({4})));
    FAIL() << "16 differences instead of 4";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("returns [4, 1] for targets [4]"), std::string::npos) << error.what();
  }
  EXPECT_THROW(static_cast<void>(loss.sum(at::zeros({4, 2}), labels({0, 1, 2, 0}))), UserError);
}

TEST(LossTest, a_wrong_label_gets_advice_that_can_be_followed) {
  EXPECT_NE(wrong_label(-100, 3).find("loss.ignore_index = -100"), std::string::npos);
  EXPECT_EQ(wrong_label(-100, 3).find("num_classes"), std::string::npos);
  EXPECT_NE(wrong_label(5, 3).find("model.num_classes = 6"), std::string::npos);
  EXPECT_NE(wrong_label(INT64_MAX, 3).find("2^31"), std::string::npos);
}

TEST(LossTest, correct_answers_are_counted_without_the_ignored) {
  const auto [correct, counted] = Loss({}, 3).count_correct(outputs(), labels({1, -100}));
  EXPECT_DOUBLE_EQ(correct, 1.0);
  EXPECT_DOUBLE_EQ(counted, 1.0);
}

}  // namespace
}  // namespace onebatch
