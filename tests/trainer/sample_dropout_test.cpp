#include "trainer/models/sample_dropout.hpp"

#include "trainer/error.hpp"

#include <ATen/ops/cat.h>
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

TEST(SampleDropoutTest, rows_must_be_samples) {
  EXPECT_THROW(sample_dropout(at::ones({3, 2}), 0.5, 0, {1, 0, k_samples}), UserError);
}

}  // namespace
}  // namespace onebatch
