#include "trainer/models/sample_dropout.hpp"

#include "trainer/base/error.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

namespace onebatch {
namespace {

const std::vector<std::int64_t> k_samples = {11, 5, 900, 2};

at::Tensor dropped(std::span<const std::int64_t> samples, std::int64_t step = 3, std::int64_t layer = 0) {
  return sample_dropout(at::ones({static_cast<std::int64_t>(samples.size()), 500}), 0.3, layer, {1, step, samples});
}

TEST(SampleDropoutTest, any_split_of_the_batch_has_the_same_mask) {
  const at::Tensor whole = dropped(k_samples);
  const auto all = std::span(k_samples);
  EXPECT_TRUE(whole.equal(at::cat({dropped(all.subspan(0, 1)), dropped(all.subspan(1, 3))})));
}

TEST(SampleDropoutTest, step_layer_and_sample_change_the_mask) {
  const auto one = std::span(k_samples).subspan(0, 1);
  EXPECT_FALSE(dropped(one).equal(dropped(one, 4)));
  EXPECT_FALSE(dropped(one).equal(dropped(one, 3, 1)));
  EXPECT_FALSE(dropped(one).equal(dropped(std::span(k_samples).subspan(1, 1))));
}

TEST(SampleDropoutTest, the_kept_are_scaled_and_about_as_many_as_asked) {
  const at::Tensor values = dropped(k_samples);
  EXPECT_NEAR(values.mean().item<double>(), 1.0, 0.05);
  EXPECT_NEAR(values.max().item<double>(), 1.0 / 0.7, 1e-6);
}

// Attention [N, heads, queries, keys], channels [N, C, T], heads folded into the batch [N * heads, queries, keys].
TEST(SampleDropoutTest, more_padding_leaves_the_mask) {
  const ForwardContext context{1, 3, k_samples};
  const auto noise = [&](std::vector<std::int64_t> sizes) { return sample_noise(sizes, 0.3, 0, context); };
  EXPECT_TRUE(noise({4, 3, 9, 9}).narrow(2, 0, 6).narrow(3, 0, 6).equal(noise({4, 3, 6, 6})));
  EXPECT_TRUE(noise({4, 5, 40}).narrow(2, 0, 7).equal(noise({4, 5, 7})));
  EXPECT_TRUE(noise({4, 40, 5}).narrow(1, 0, 7).equal(noise({4, 7, 5})));
  EXPECT_TRUE(noise({12, 9, 9}).narrow(1, 0, 6).narrow(2, 0, 6).equal(noise({12, 6, 6})));
}

TEST(SampleDropoutTest, elements_of_any_coordinates_draw_apart) {
  const at::Tensor values = sample_noise({4, 8, 50, 50}, 0.3, 0, {1, 3, k_samples});
  EXPECT_NEAR(values.mean().item<double>(), 0.7, 0.01);
  for (const std::int64_t dimension : {1, 2, 3}) {
    const std::int64_t size = values.size(dimension);
    const at::Tensor one = values.narrow(dimension, 0, size - 1);
    const at::Tensor next = values.narrow(dimension, 1, size - 1);
    EXPECT_NEAR(one.eq(next).to(at::kDouble).mean().item<double>(), 0.7 * 0.7 + 0.3 * 0.3, 0.02)
        << "neighbours along " << dimension;
  }
}

TEST(SampleDropoutTest, noise_has_the_type_and_the_value_that_are_asked_for) {
  const ForwardContext context{1, 3, k_samples};
  const at::Tensor expected = sample_noise({4, 5, 6}, 0.3, 2, context);
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
    const at::Tensor like = at::empty({0}, type);
    const at::Tensor found = sample_noise_like(like, {4, 5, 6}, 0.3, 1.0 / 0.7, 2, context);
    EXPECT_TRUE(found.equal(expected.to(type).mul(1.0 / 0.7))) << type;
  }
}

TEST(SampleDropoutTest, rows_must_be_samples) {
  EXPECT_THROW(sample_dropout(at::ones({3, 2}), 0.5, 0, {1, 0, k_samples}), UserError);
}

}  // namespace
}  // namespace onebatch
