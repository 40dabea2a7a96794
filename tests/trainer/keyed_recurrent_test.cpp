// Dropout between recurrent layers, against layers stacked by hand.
#include "trainer/models/keyed_recurrent.hpp"

#include "trainer/base/error.hpp"
#include "trainer/models/keyed_randomness.hpp"
#include "trainer/models/sample_dropout.hpp"

#include <ATen/ops/gru.h>
#include <ATen/ops/lstm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace onebatch {
namespace {

constexpr std::int64_t k_batch = 4;
constexpr std::int64_t k_length = 4;  // as many as samples: no size tells them apart
constexpr std::int64_t k_width = 5;
constexpr double k_dropout = 0.4;
const std::vector<std::int64_t> k_samples = {7, 1, 30, 2};

std::vector<at::Tensor> weights(std::int64_t layers, std::int64_t gates) {
  at::manual_seed(3);
  std::vector<at::Tensor> made;
  for (std::int64_t i = 0; i < 2 * layers; ++i) made.push_back(at::randn({gates * k_width, k_width}, at::kDouble));
  return made;
}

at::Tensor state(std::int64_t layers) {
  return at::zeros({layers, k_batch, k_width}, at::kDouble);
}

// [N, T, F] in and out.
at::Tensor stacked(const at::Tensor& inputs, const std::vector<at::Tensor>& of) {
  const auto layer = [&](const at::Tensor& x, std::size_t first) {
    return std::get<0>(at::lstm(x, {state(1), state(1)}, {of[first], of[first + 1]}, false, 1, 0.0, true, false, true));
  };
  return layer(sample_dropout(layer(inputs, 0), k_dropout, 0, {1, 5, k_samples}), 2);
}

class KeyedRecurrentTest : public ::testing::Test {
 protected:
  std::shared_ptr<void> operators_ = hold_keyed_operators();
  at::Tensor inputs_ = at::randn({k_batch, k_length, k_width}, at::kDouble);
  ForwardContext context_{1, 5, k_samples};
};

TEST_F(KeyedRecurrentTest, masks_are_the_samples_whether_batch_or_time_comes_first) {
  const auto of = weights(2, 4);
  const at::Tensor expected = stacked(inputs_, of);
  const RandomnessScope scope(context_);
  const auto batch_first = at::lstm(inputs_, {state(2), state(2)}, of, false, 2, k_dropout, true, false, true);
  EXPECT_TRUE(std::get<0>(batch_first).allclose(expected, 1e-12, 1e-12));
  set_random_place({});
  const auto time_first =
      at::lstm(inputs_.transpose(0, 1), {state(2), state(2)}, of, false, 2, k_dropout, true, false, false);
  EXPECT_TRUE(std::get<0>(time_first).transpose(0, 1).allclose(expected, 1e-12, 1e-12));
  EXPECT_TRUE(std::get<1>(time_first).select(0, 1).allclose(expected.select(1, k_length - 1), 1e-12, 1e-12))
      << "the last layer's last state";
  EXPECT_EQ(random_place().layer, 1);
}

TEST_F(KeyedRecurrentTest, evaluation_is_libtorchs_own) {
  const auto of = weights(2, 3);
  const auto expected = at::gru(inputs_, state(2), of, false, 2, 0.0, false, false, true);
  const RandomnessScope scope(context_);
  EXPECT_TRUE(std::get<0>(at::gru(inputs_, state(2), of, false, 2, k_dropout, false, false, true))
                  .equal(std::get<0>(expected)));
  EXPECT_EQ(random_place().layer, 0);
}

TEST_F(KeyedRecurrentTest, packed_sequences_are_refused) {
  const auto of = weights(2, 3);
  const at::Tensor packed = at::randn({k_batch * k_length, k_width}, at::kDouble);
  const at::Tensor sizes = at::zeros({k_length}, at::kLong).fill_(k_batch);
  const RandomnessScope scope(context_);
  EXPECT_THROW(at::gru(packed, sizes, state(2), of, false, 2, k_dropout, true, false), UserError);
  EXPECT_TRUE(scope.refusal() != nullptr);
  EXPECT_NO_THROW(at::gru(packed, sizes, state(2), of, false, 2, 0.0, true, false));
}

}  // namespace
}  // namespace onebatch
