#include "trainer/data/samples_kind.hpp"

#include "trainer/base/error.hpp"
#include "trainer/data/augment.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace onebatch {
namespace {

using ::testing::HasSubstr;

struct Example {
  at::Tensor data;
  at::Tensor target;
};

// As torch::data::Dataset is seen: sample i is [i, 2i], its label i modulo 3.
struct Doubled {
  static Example get(std::size_t index) {
    const auto i = static_cast<double>(index);
    return {at::tensor({i, 2.0 * i}), at::scalar_tensor(static_cast<int>(index % 3), at::kInt)};
  }
  static std::optional<std::size_t> size() { return 2000; }
};

struct Pictures {
  static Example get(std::size_t /*index*/) { return {at::ones({1, 4, 4}), at::scalar_tensor(0, at::kLong)}; }
  static std::optional<std::size_t> size() { return 2; }
};

std::unique_ptr<Dataset> opened(const Samples& samples, std::optional<std::int64_t> ignored = std::nullopt) {
  return samples_kind("mine", [samples](const OpenRequest&) { return samples; }).open({}, {Split::train, 1, ignored});
}

std::string words_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const UserError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

Batch tensors(std::int64_t inputs, std::int64_t targets) {
  return {{at::arange(2 * inputs).view({inputs, 2})}, at::arange(targets), {}};
}

TEST(SamplesKindTest, tensors_are_given_row_by_row_in_the_order_asked_for) {
  const auto data = opened(tensors(6, 6));
  EXPECT_EQ(data->size(), 6);
  EXPECT_EQ(data->sample_shape(), (std::vector<std::int64_t>{2}));
  EXPECT_EQ(data->num_classes(), 6);
  const std::vector<std::int64_t> some = {5, 0, 5};
  const Batch batch = data->gather(some, at::kDouble);
  EXPECT_TRUE(batch.inputs[0].equal(at::tensor({10, 11, 0, 1, 10, 11}, at::kLong).view({3, 2})));
  EXPECT_TRUE(batch.targets.equal(at::tensor({5, 0, 5}, at::kLong)));
}

TEST(SamplesKindTest, booleans_stay_as_inputs_and_other_whole_numbers_arrive_in_64_bits) {
  Batch all = tensors(6, 6);
  all.inputs = {at::arange(6).gt(2), at::arange(6).to(at::kByte)};
  all.targets = at::arange(6).gt(2);
  const std::vector<std::int64_t> some = {5, 0};
  const Batch batch = opened(all)->gather(some, at::kDouble);
  EXPECT_EQ(batch.inputs[0].scalar_type(), at::kBool);
  EXPECT_TRUE(batch.inputs[0].equal(at::tensor({1, 0}).to(at::kBool)));
  EXPECT_EQ(batch.inputs[1].scalar_type(), at::kLong);
  EXPECT_EQ(batch.targets.scalar_type(), at::kLong);
}

TEST(SamplesKindTest, examples_are_stacked_in_the_type_asked_for) {
  const auto data = opened(Doubled());
  EXPECT_EQ(data->size(), 2000);
  EXPECT_EQ(data->num_classes(), 3);
  EXPECT_EQ(data->labels()->largest.sample, 2);
  const std::vector<std::int64_t> some = {1999, 4};
  const Batch batch = data->gather(some, at::kDouble);
  EXPECT_EQ(batch.inputs[0].scalar_type(), at::kDouble);
  EXPECT_TRUE(batch.inputs[0].equal(at::tensor({1999.0, 3998.0, 4.0, 8.0}, at::kDouble).view({2, 2})));
  EXPECT_TRUE(batch.targets.equal(at::tensor({1, 1}, at::kLong)));
}

TEST(SamplesKindTest, examples_that_are_images_can_be_augmented) {
  const auto data = opened(Pictures());
  EXPECT_NO_THROW(check_augmentation({.crop_padding = 1, .horizontal_flip = true}, *data));
  EXPECT_THAT(words_of([&] { check_augmentation({.crop_padding = 4}, *data); }), HasSubstr("less than the images' 4"));
}

TEST(SamplesKindTest, classes_are_what_counts_or_what_is_said) {
  Samples samples = tensors(6, 6);
  EXPECT_EQ(opened(samples, 5)->num_classes(), 5);
  samples.num_classes = 9;
  EXPECT_EQ(opened(samples)->num_classes(), 9);
  Batch numbers = tensors(6, 6);
  numbers.targets = at::ones({6, 1});
  EXPECT_EQ(opened(numbers)->num_classes(), 0);
}

TEST(SamplesKindTest, what_does_not_fit_is_said_by_name) {
  EXPECT_THAT(words_of([] { opened(tensors(6, 5)); }), HasSubstr("first input has 6 samples"));
  EXPECT_THAT(words_of([] { opened(tensors(0, 0)); }), HasSubstr("data.kind = \"mine\" has no samples"));
  EXPECT_THAT(words_of([] { opened(Samples(3, [](auto) { return tensors(2, 2); })); }),
              HasSubstr("for 1 samples it gives [2, 2] on cpu: give tensors [1, ...] on the CPU"));
  EXPECT_THAT(words_of([] { opened(Samples(3, [](auto) { return Batch(); })); }), HasSubstr("without any input"));
  Batch weighted = tensors(6, 6);
  weighted.weights = at::ones({6, 2});
  EXPECT_THAT(words_of([&] { opened(weighted); }), HasSubstr("weights that have not the targets' shape"));
}

}  // namespace
}  // namespace onebatch
