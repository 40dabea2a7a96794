#include "trainer/gradients/reproducible_sum.hpp"

#include "trainer/gradients/loss_scale.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

namespace onebatch {
namespace {

constexpr std::int64_t k_count = 257;

struct Sum {
  explicit Sum(at::ScalarType type)
      : total({{0, k_count}}, at::zeros({ReproducibleSum::length(k_count, type)}, at::kDouble), k_count),
        flat(at::empty({k_count}, type)) {}

  // As ranks do it: each its own part, then the parts' sum; a base that turns out too low is followed and all is done
  // again.
  at::Tensor of(const std::vector<at::Tensor>& gradients, const std::vector<std::vector<std::size_t>>& ranks) {
    for (int pass = 0; pass < 3; ++pass) {
      at::Tensor all = at::zeros_like(total.sums());
      std::vector<double> largest = {0.0};
      for (const auto& rank : ranks) {
        total.begin_step();
        for (const std::size_t i : rank) total.add(0, gradients[i]);
        total.complete();
        all.add_(total.sums());
        largest[0] = std::max(largest[0], total.largest()[0]);
      }
      if (!total.follow(largest)) continue;
      total.begin_step();
      total.sums().copy_(all);
      total.write_to(flat, 1.0);
      return flat.clone();
    }
    ADD_FAILURE() << "the base never held";
    return {};
  }

  ReproducibleSum total;
  at::Tensor flat;
};

// Magnitudes over sixty powers of two, in one tensor.
std::vector<at::Tensor> gradients(at::ScalarType type, std::size_t count) {
  std::vector<at::Tensor> made;
  for (std::size_t i = 0; i < count; ++i)
    made.push_back(at::randn({k_count}, at::kDouble).mul(at::randn({k_count}, at::kDouble).mul(14.0).exp2()).to(type));
  return made;
}

TEST(ReproducibleSumTest, order_and_grouping_change_no_bit) {
  std::mt19937 random(3);
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    for (int trial = 0; trial < 50; ++trial) {
      const auto summands = gradients(type, 12);
      std::vector<std::size_t> order(summands.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      const at::Tensor expected = Sum(type).of(summands, {order});
      for (std::size_t num_ranks = 1; num_ranks <= 4; ++num_ranks) {
        std::shuffle(order.begin(), order.end(), random);
        std::vector<std::vector<std::size_t>> ranks(num_ranks);
        for (const std::size_t i : order) ranks[random() % num_ranks].push_back(i);
        ASSERT_TRUE(Sum(type).of(summands, ranks).equal(expected)) << type << ", " << num_ranks << " ranks";
      }
    }
  }
}

TEST(ReproducibleSumTest, is_as_good_as_an_ordinary_sum) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    std::vector<at::Tensor> summands;
    for (int i = 0; i < 64; ++i) summands.push_back(at::randn({k_count}, type));
    std::vector<std::size_t> order(summands.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    at::Tensor plain = at::zeros({k_count}, type);
    at::Tensor truth = at::zeros({k_count}, at::kDouble);
    for (const at::Tensor& summand : summands) {
      plain.add_(summand);
      truth.add_(summand.to(at::kDouble));
    }
    const double ours = Sum(type).of(summands, {order}).to(at::kDouble).sub(truth).norm().item<double>();
    const double theirs = plain.to(at::kDouble).sub(truth).norm().item<double>();
    EXPECT_LE(ours, type == at::kFloat ? theirs : 1e-13 * truth.norm().item<double>()) << type;
  }
}

TEST(ReproducibleSumTest, the_fast_loop_and_the_operators_agree) {
  const auto summands = gradients(at::kFloat, 5);
  Sum fast(at::kFloat);
  Sum plain(at::kFloat);
  const at::Tensor a = fast.of(summands, {{0, 1, 2, 3, 4}});
  std::vector<at::Tensor> wide;
  for (const at::Tensor& summand : summands) wide.push_back(summand.to(at::kDouble));  // takes the way over operators
  EXPECT_TRUE(plain.of(wide, {{0, 1, 2, 3, 4}}).equal(a));
  EXPECT_EQ(fast.total.bases(), plain.total.bases());
}

TEST(ReproducibleSumTest, a_base_follows_up_at_once_and_down_late) {
  Sum sum(at::kFloat);
  const auto base_after = [&](double largest, bool good) {
    EXPECT_EQ(sum.total.follow({largest}), good) << largest;
    return sum.total.bases()[0];
  };
  EXPECT_EQ(base_after(1.0, false), 4) << "the first is always new";
  EXPECT_EQ(base_after(16.0, true), 4);
  EXPECT_EQ(base_after(17.0, false), 9);
  EXPECT_EQ(base_after(std::ldexp(1.0, -3), true), 9);
  EXPECT_EQ(base_after(std::ldexp(1.0, -4), true), 0);
  EXPECT_EQ(base_after(0.0, true), 0) << "nothing was added";
  EXPECT_EQ(base_after(HUGE_VAL, true), 0) << "the sum itself says so";
}

TEST(ReproducibleSumTest, what_is_not_finite_stays_so) {
  Sum sum(at::kFloat);
  for (const double bad : {HUGE_VAL, -HUGE_VAL, static_cast<double>(NAN)}) {
    at::Tensor gradient = at::zeros({k_count});
    gradient[7] = bad;
    EXPECT_FALSE(std::isfinite(sum.of({gradient}, {{0}})[7].item<double>()));
    EXPECT_EQ(sum.total.largest()[0], 0.0) << "a new step forgets it";
  }
}

PrecisionConfiguration float16(std::optional<double> scale = {}) {
  PrecisionConfiguration precision;
  precision.compute = Precision::float16;
  precision.loss_scale = scale;
  precision.loss_scale_growth_steps = 3;
  return precision;
}

TEST(LossScaleTest, follows_grad_scalers_rules) {
  LossScale scale(float16(), 256);
  EXPECT_EQ(scale.scale(), 65536.0);
  EXPECT_EQ(scale.factor(), 256.0) << "of a sum of 256";
  std::vector<double> seen;
  constexpr auto ok = GradientRange::finite, no = GradientRange::overflowed;
  for (const GradientRange gradient : {ok, ok, no, ok, ok, ok, ok, no, no, ok}) {
    EXPECT_TRUE(scale.update(gradient));
    seen.push_back(scale.scale());
  }
  EXPECT_EQ(seen, (std::vector<double>{65536, 65536, 32768, 32768, 32768, 65536, 65536, 32768, 16384, 16384}));
}

TEST(LossScaleTest, gives_up_where_no_scale_helps) {
  LossScale dynamic(float16(), 1);
  int steps = 1;
  while (dynamic.update(GradientRange::overflowed)) ++steps;
  EXPECT_EQ(steps, 27) << "2^16 to below 2^-10";
  EXPECT_EQ(dynamic.tried_text(), "at any loss scale down to 0.000976562") << "2^-10 was the last";
  LossScale fixed(float16(1024.0), 1);
  EXPECT_TRUE(fixed.update(GradientRange::overflowed));
  EXPECT_EQ(fixed.scale(), 1024.0);
  steps = 2;
  while (fixed.update(GradientRange::overflowed)) ++steps;
  EXPECT_EQ(steps, 20);
  EXPECT_EQ(fixed.tried_text(), "at the fixed loss scale 1024, 20 steps in a row");
}

TEST(LossScaleTest, other_precisions_have_none) {
  LossScale none({}, 256);
  EXPECT_EQ(none.factor(), 1.0);
  EXPECT_TRUE(none.update(GradientRange::finite));
  EXPECT_FALSE(none.update(GradientRange::overflowed));
}

}  // namespace
}  // namespace onebatch
