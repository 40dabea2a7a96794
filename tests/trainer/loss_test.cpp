#include "trainer/loss.hpp"

#include "trainer/error.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>
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
  EXPECT_NEAR(loss.sum(outputs(), labels({1, 2})).item<double>(), negative_log_softmax(0, 1) + negative_log_softmax(1, 2), 1e-14);
  EXPECT_DOUBLE_EQ(loss.weight(labels({1, 2})), 2.0);
}

TEST(LossTest, ignored_labels_weigh_nothing) {
  const Loss loss({}, 3);
  EXPECT_NEAR(loss.sum(outputs(), labels({-100, 2})).item<double>(), negative_log_softmax(1, 2), 1e-14);
  EXPECT_DOUBLE_EQ(loss.weight(labels({-100, 2})), 1.0);
  EXPECT_DOUBLE_EQ(loss.weight(labels({-100, -100})), 0.0);
}

TEST(LossTest, class_weights_weigh_loss_and_batch_alike) {
  LossConfiguration configuration;
  configuration.class_weights = {1.0, 0.5, 4.0};
  const Loss loss(configuration, 3);
  EXPECT_NEAR(loss.sum(outputs(), labels({1, 2})).item<double>(), 0.5 * negative_log_softmax(0, 1) + 4.0 * negative_log_softmax(1, 2),
              1e-14);
  EXPECT_DOUBLE_EQ(loss.weight(labels({1, 2})), 4.5);
  EXPECT_THROW(Loss(configuration, 4), UserError);
}

TEST(LossTest, tokens_weigh_by_themselves) {
  const Loss loss({}, 3);
  const at::Tensor tokens = labels({1, 2, -100, 0}).view({2, 2});
  const at::Tensor weights = at::tensor({0.5, 2.0, 7.0, 1.0}, at::kDouble).view({2, 2});
  const at::Tensor last = at::cat({outputs(), outputs()}).view({2, 2, 3});
  const double expected = 0.5 * negative_log_softmax(0, 1) + 2.0 * negative_log_softmax(1, 2) + negative_log_softmax(1, 0);
  EXPECT_NEAR(loss.sum(last, tokens, weights).item<double>(), expected, 1e-14);
  EXPECT_NEAR(loss.sum(last.movedim(2, 1), tokens, weights).item<double>(), expected, 1e-14) << "classes second";
  EXPECT_NEAR(loss.sum(last.flatten(0, 1), tokens, weights).item<double>(), expected, 1e-14) << "flattened by the model";
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

TEST(LossTest, a_label_without_a_class_is_the_users_to_mend) {
  EXPECT_THROW(static_cast<void>(Loss({}, 3).weight(labels({3}))), UserError);
  EXPECT_THROW(static_cast<void>(Loss({}, 3).weight(labels({-1}))), UserError);
}

TEST(LossTest, squared_error_is_a_sum_over_samples) {
  LossConfiguration configuration;
  configuration.kind = LossKind::mse;
  const Loss loss(configuration, 3);
  // One-hot targets {0,1,0} and {0,0,1}: squares 1+1+.25 and 1+0+4, each a mean over three outputs.
  EXPECT_NEAR(loss.sum(outputs(), labels({1, 2})).item<double>(), (2.25 + 5.0) / 3.0, 1e-14);
  EXPECT_FALSE(loss.is_classification());
}

TEST(LossTest, correct_answers_are_counted_without_the_ignored) {
  const auto [correct, counted] = Loss({}, 3).count_correct(outputs(), labels({1, -100}));
  EXPECT_DOUBLE_EQ(correct, 1.0);
  EXPECT_DOUBLE_EQ(counted, 1.0);
}

}  // namespace
}  // namespace onebatch
