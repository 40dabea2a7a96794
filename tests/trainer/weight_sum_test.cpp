#include "trainer/step/weight_sum.hpp"

#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

namespace onebatch {
namespace {

TEST(WeightSumTest, any_order_and_grouping_has_the_same_bits_which_are_the_exact_sums) {
  std::mt19937 generator(5);
  std::uniform_real_distribution<double> weights(1e-9, 300.0);
  for (int round = 0; round < 50; ++round) {
    std::vector<double> all(1000);
    std::ranges::generate(all, [&] { return weights(generator); });
    WeightSum expected;
    long double exact = 0.0L;
    for (const double weight : all) {
      expected.add(weight, AnyOrder::yes);
      exact += weight;
    }
    std::ranges::shuffle(all, generator);
    std::vector<WeightSum> ranks(3);
    for (std::size_t i = 0; i < all.size(); ++i) ranks[i * i % 7 % 3].add(all[i], AnyOrder::yes);
    double coarse = 0.0;
    double fine = 0.0;
    for (const WeightSum& rank : ranks) {
      coarse += rank.coarse;
      fine += rank.fine;
    }
    EXPECT_EQ(coarse, expected.coarse);
    EXPECT_EQ(fine, expected.fine);
    EXPECT_NEAR(expected.value(), static_cast<double>(exact), 1e-15 * static_cast<double>(exact));
  }
}

TEST(WeightSumTest, whole_numbers_have_no_fine_part) {
  WeightSum sum;
  for (const double weight : {0.0, 1.0, 4096.0, 2147483647.0}) sum.add(weight, AnyOrder::yes);
  EXPECT_EQ(sum.coarse, 4097.0 + 2147483647.0);
  EXPECT_EQ(sum.fine, 0.0);
}

TEST(WeightSumTest, small_weights_are_whole_where_their_order_is_given) {
  WeightSum sum;
  for (int i = 0; i < 3; ++i) sum.add(1e-25, AnyOrder::no);
  EXPECT_DOUBLE_EQ(sum.value(), 3e-25);
}

TEST(WeightSumTest, a_tensor_has_the_parts_of_its_number) {
  for (const auto& [weight, any] : {std::pair(0.0, AnyOrder::yes),
                                    {0.1, AnyOrder::yes},
                                    {7.0, AnyOrder::no},
                                    {1e-7, AnyOrder::yes},
                                    {1e-7, AnyOrder::no},
                                    {123456.789, AnyOrder::yes}}) {
    WeightSum sum;
    sum.add(weight, any);
    const at::Tensor parts = at::zeros({2}, at::kDouble);
    add_weight(parts, at::scalar_tensor(weight, at::kDouble), any);
    EXPECT_EQ(parts[0].item<double>(), sum.coarse);
    EXPECT_EQ(parts[1].item<double>(), sum.fine);
  }
}

}  // namespace
}  // namespace onebatch
