#include "trainer/data/dataset.hpp"

#include "tests/unit/scratch_folder.hpp"
#include "tests/unit/tar_member.hpp"
#include "trainer/base/error.hpp"
#include "trainer/data/augment.hpp"
#include "trainer/data/padding.hpp"
#include "trainer/io/tensor_file.hpp"
#include "trainer/replica/output_check.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

namespace onebatch {
namespace {

std::vector<std::int64_t> first(std::int64_t count) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(count));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

DatasetConfiguration synthetic() {
  DatasetConfiguration configuration;
  configuration.kind = "synthetic";
  configuration.shape = {3, 5};
  configuration.size = 2000;
  configuration.num_classes = 7;
  return configuration;
}

TEST(DatasetsTest, digits_lie_between_0_and_1_in_both_splits) {
  DatasetConfiguration configuration;
  configuration.path = ONEBATCH_DIGITS;
  for (const Split split : {Split::train, Split::validation}) {
    const auto data = open_dataset(configuration, split, 1);
    EXPECT_EQ(data->size(), split == Split::train ? 1500 : 297);
    EXPECT_EQ(data->sample_shape(), (std::vector<std::int64_t>{1, 8, 8}));
    EXPECT_EQ(data->num_classes(), 10);
    const Batch batch = data->gather(first(data->size()), at::kFloat);
    EXPECT_EQ(batch.inputs[0].min().item<float>(), 0.0F);
    EXPECT_EQ(batch.inputs[0].max().item<float>(), 1.0F);
  }
}

TEST(DatasetsTest, a_sample_is_a_function_of_its_index_alone) {
  const auto data = open_dataset(synthetic(), Split::train, 3);
  const std::vector<std::int64_t> some = {7, 3, 1999};
  const Batch batch = data->gather(some, at::kDouble);
  for (std::size_t i = 0; i < some.size(); ++i) {
    const Batch one = data->gather(std::span(some).subspan(i, 1), at::kDouble);
    EXPECT_TRUE(one.inputs[0][0].equal(batch.inputs[0][static_cast<std::int64_t>(i)]));
    EXPECT_TRUE(one.targets[0].equal(batch.targets[static_cast<std::int64_t>(i)]));
  }
  EXPECT_TRUE(data->gather(some, at::kFloat).inputs[0].equal(batch.inputs[0].to(at::kFloat)));
}

TEST(DatasetsTest, synthetic_values_have_mean_0_variance_1_and_all_labels) {
  const Batch batch = open_dataset(synthetic(), Split::train, 3)->gather(first(2000), at::kDouble);
  EXPECT_NEAR(batch.inputs[0].mean().item<double>(), 0.0, 0.02);
  EXPECT_NEAR(batch.inputs[0].var().item<double>(), 1.0, 0.02);
  EXPECT_EQ(batch.targets.min().item<std::int64_t>(), 0);
  EXPECT_EQ(batch.targets.max().item<std::int64_t>(), 6);
}

TEST(DatasetsTest, seed_and_split_change_the_samples) {
  const auto one = open_dataset(synthetic(), Split::train, 3)->gather(first(4), at::kFloat).inputs[0];
  EXPECT_FALSE(one.equal(open_dataset(synthetic(), Split::train, 4)->gather(first(4), at::kFloat).inputs[0]));
  EXPECT_FALSE(one.equal(open_dataset(synthetic(), Split::validation, 3)->gather(first(4), at::kFloat).inputs[0]));
}

TEST(DatasetsTest, samples_outside_are_refused) {
  const auto data = open_dataset(synthetic(), Split::train, 3);
  EXPECT_THROW(data->gather(std::vector<std::int64_t>{2000}, at::kFloat), std::out_of_range);
  EXPECT_THROW(data->gather(std::vector<std::int64_t>{-1}, at::kFloat), std::out_of_range);
  EXPECT_EQ(data->gather({}, at::kFloat).inputs[0].size(0), 0);
}

// Three samples of up to four words.
class TensorFileTest : public ::testing::Test {
 protected:
  TensorFileTest() {
    save_tensors(folder_ / "data", {{"words", at::arange(12, at::kInt).view({3, 4})},
                                    {"lengths", at::tensor({2, 4, 1}, at::kLong)},
                                    {"labels", at::arange(-5, 7, at::kLong).view({3, 4})},
                                    {"weights", at::ones({3, 4})},
                                    {"image", at::zeros({3, 2, 2}, at::kHalf)}});
    configuration_.kind = "safetensors";
    configuration_.path = (folder_ / "data").string();
    configuration_.inputs = {"words", "image"};
    configuration_.target = "labels";
    configuration_.weights = "weights";
    configuration_.lengths = "lengths";
  }

  [[nodiscard]] std::string refusal() const {
    try {
      open_dataset(configuration_, Split::train, 1);
    } catch (const UserError& error) {
      return error.what();
    }
    return "none";
  }

  testing::ScratchFolder folder_;
  DatasetConfiguration configuration_;
};

TEST_F(TensorFileTest, has_samples_of_unlike_cost) {
  const auto data = open_dataset(configuration_, Split::train, 1);
  EXPECT_EQ(data->size(), 3);
  EXPECT_EQ(data->num_classes(), 7);
  EXPECT_EQ(data->costliest(4), (std::vector<std::int64_t>{1, 0, 2, 1}));
}

TEST_F(TensorFileTest, samples_are_cut_to_the_longest_among_them) {
  const Batch batch =
      open_dataset(configuration_, Split::train, 1)->gather(std::vector<std::int64_t>{2, 0}, at::kDouble);
  EXPECT_TRUE(batch.inputs[0].equal(at::tensor({8, 9, 0, 1}, at::kLong).view({2, 2})));
  EXPECT_EQ(batch.inputs[1].sizes(), (std::vector<std::int64_t>{2, 2, 2}));
  EXPECT_TRUE(batch.targets.equal(at::tensor({3, 4, -5, -4}, at::kLong).view({2, 2})));
}

TEST_F(TensorFileTest, numbers_that_are_computed_with_have_the_type_that_is_asked_for) {
  const Batch batch =
      open_dataset(configuration_, Split::train, 1)->gather(std::vector<std::int64_t>{2, 0}, at::kDouble);
  EXPECT_EQ(batch.inputs[1].scalar_type(), at::kDouble);
  EXPECT_EQ(batch.weights.scalar_type(), at::kDouble);
}

TEST_F(TensorFileTest, a_tensor_that_is_not_there_is_answered_with_those_that_are) {
  configuration_.target = "label";
  EXPECT_NE(refusal().find("no tensor \"label\": write one of"), std::string::npos) << refusal();
}

TEST_F(TensorFileTest, lengths_are_one_whole_number_a_sample) {
  configuration_.lengths = "labels";
  EXPECT_NE(refusal().find("one whole number per sample"), std::string::npos) << refusal();
}

TEST_F(TensorFileTest, weights_are_of_the_targets_shape) {
  configuration_.weights = "lengths";
  EXPECT_NE(refusal().find("of the target's shape"), std::string::npos) << refusal();
}

TEST_F(TensorFileTest, a_file_that_is_not_there_is_named) {
  configuration_.path = "/nonexistent";
  EXPECT_NE(refusal().find("/nonexistent"), std::string::npos) << refusal();
}

DatasetConfiguration file_of(const testing::ScratchFolder& folder, const std::vector<NamedTensor>& tensors) {
  save_tensors(folder / "data", tensors);
  DatasetConfiguration configuration;
  configuration.kind = "safetensors";
  configuration.path = (folder / "data").string();
  return configuration;
}

TEST(DatasetsTest, the_ignored_label_is_no_class) {
  const testing::ScratchFolder folder;
  const auto configuration =
      file_of(folder, {{"x", at::zeros({4, 2})}, {"y", at::tensor({2, 255, 0, 255}, at::kLong)}});
  const auto data = open_dataset(configuration, Split::train, 1, 255);
  EXPECT_EQ(data->num_classes(), 3);
  EXPECT_EQ(data->labels().value().largest.sample, 0);
  EXPECT_EQ(data->labels().value().least.sample, 2);
  EXPECT_EQ(open_dataset(configuration, Split::train, 1)->num_classes(), 256);
}

TEST(DatasetsTest, the_largest_of_all_labels_does_not_overflow) {
  const testing::ScratchFolder folder;
  const auto data = open_dataset(
      file_of(folder, {{"x", at::zeros({2, 2})}, {"y", at::tensor({std::int64_t{0}, INT64_MAX}, at::kLong)}}),
      Split::train, 1);
  EXPECT_EQ(data->num_classes(), k_most_classes);
  EXPECT_EQ(data->labels().value().largest.value, INT64_MAX);
  EXPECT_THROW(check_targets({}, *data, data->num_classes(), "data"), UserError);
}

TEST(DatasetsTest, a_type_that_is_not_supported_matters_where_it_is_asked_for) {
  const testing::ScratchFolder folder;
  const std::vector<float> x(2);
  const std::vector<std::int64_t> y(2);
  const std::vector<SafetensorsView> views = {{"id", "U64", {2}, std::as_bytes(std::span(y))},
                                              {"x", "F32", {2, 1}, std::as_bytes(std::span(x))},
                                              {"y", "I64", {2}, std::as_bytes(std::span(y))}};
  write_safetensors(folder / "data", views, {});
  DatasetConfiguration configuration;
  configuration.kind = "safetensors";
  configuration.path = (folder / "data").string();
  EXPECT_EQ(open_dataset(configuration, Split::train, 1)->size(), 2);
  configuration.inputs = {"id"};
  try {
    open_dataset(configuration, Split::train, 1);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("id has the type U64, which is not supported"), std::string::npos);
  }
}

// Of one input and a class of 0 a sample.
std::unique_ptr<Dataset> opened_shard(const testing::ScratchFolder& folder, const std::string& input,
                                      const std::vector<std::string>& contents) {
  const std::string ending = input.substr(0, input.find(':'));
  std::string bytes;
  for (std::size_t i = 0; i < contents.size(); ++i)
    bytes += testing::tar_member(std::to_string(i) + "." + ending, contents[i]) +
             testing::tar_member(std::to_string(i) + ".cls", "0");
  testing::write_bytes(folder / "a.tar", bytes + std::string(1024, '\0'));
  DatasetConfiguration configuration;
  configuration.kind = "tar";
  configuration.path = (folder / "a.tar").string();
  configuration.inputs = {input};
  configuration.target = "cls";
  return open_dataset(configuration, Split::train, 1);
}

TEST(DatasetsTest, json_inputs_are_numbers_where_any_sample_has_one_that_is_not_whole) {
  const testing::ScratchFolder folder;
  const auto numbers = opened_shard(folder, "json:age", {R"({"age": 3})", R"({"age": 4})", R"({"age": 3.5})"});
  EXPECT_TRUE(numbers->gather(first(3), at::kDouble).inputs[0].equal(at::tensor({3.0, 4.0, 3.5}, at::kDouble)));
  const auto whole = opened_shard(folder, "json:age", {R"({"age": 3})", R"({"age": 4})"});
  EXPECT_TRUE(whole->gather(first(2), at::kDouble).inputs[0].equal(at::tensor({3, 4}, at::kLong)));
}

TEST(DatasetsTest, arrays_of_bytes_may_claim_any_order_of_bytes) {
  const testing::ScratchFolder folder;
  const auto array_of = [](const std::string& type) {
    const std::string dictionary = "{'descr': '" + type + "', 'fortran_order': False, 'shape': (2,), }\n";
    return std::string("\x93NUMPY\1\0", 8) + static_cast<char>(dictionary.size()) + '\0' + dictionary + "\7\377";
  };
  for (const char* type : {"|u1", "<u1", ">u1", "=u1"}) {
    const at::Tensor read = opened_shard(folder, "npy", {array_of(type)})->gather(first(1), at::kFloat).inputs[0];
    EXPECT_TRUE(read.equal(at::tensor({7, 255}, at::kLong).view({1, 2}))) << type;
  }
  EXPECT_THROW(opened_shard(folder, "npy", {array_of("?u1")}), UserError);
  EXPECT_THROW(opened_shard(folder, "npy", {array_of(">i2")}), UserError);
}

TEST(DatasetsTest, tensors_without_values_are_refused) {
  const testing::ScratchFolder folder;
  EXPECT_THROW(
      open_dataset(file_of(folder, {{"x", at::zeros({3, 2})}, {"y", at::zeros({3, 0}, at::kLong)}}), Split::train, 1),
      UserError);
  EXPECT_THROW(
      open_dataset(file_of(folder, {{"x", at::zeros({std::int64_t{1} << 40, 0})}, {"y", at::zeros({3}, at::kLong)}}),
                   Split::train, 1),
      UserError);
}

TEST(DatasetsTest, weights_are_finite_and_not_negative) {
  const testing::ScratchFolder folder;
  for (const double wrong : {-0.5, std::nan(""), HUGE_VAL}) {
    auto configuration =
        file_of(folder, {{"x", at::zeros({3, 2})},
                         {"y", at::zeros({3, 2}, at::kLong)},
                         {"w", at::tensor({1.0, 0.0, 1.0, wrong, 2.0, 1.0}, at::kDouble).view({3, 2})}});
    configuration.weights = "w";
    try {
      open_dataset(configuration, Split::train, 1);
      FAIL() << wrong;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("sample 1 of data.weights \"w\" holds"), std::string::npos)
          << error.what();
    }
  }
}

TEST(DatasetsTest, samples_can_be_padded_as_in_a_larger_batch) {
  const testing::ScratchFolder folder;
  auto configuration = file_of(folder, {{"x", at::arange(12, at::kFloat).view({3, 4})},
                                        {"y", at::zeros({3}, at::kLong)},
                                        {"n", at::tensor({2, 3, 1}, at::kLong)}});
  configuration.lengths = "n";
  const auto data = open_dataset(configuration, Split::train, 1);
  const std::vector<std::int64_t> some = {2};
  EXPECT_EQ(data->gather(some, at::kFloat).inputs[0].sizes(), (std::vector<std::int64_t>{1, 1}));
  EXPECT_EQ(longest_of(*data), 3);
  EXPECT_EQ(longest_of(*data, std::vector<std::int64_t>{2, 0}), 2);
  EXPECT_TRUE(
      PaddedTo(*data, 3).gather(some, at::kFloat).inputs[0].equal(at::tensor({8.0F, 9.0F, 10.0F}).view({1, 3})));
}

// By definition: pixel (r, c) of the shifted image is (r - down, c - right) of the image, or 0; then it is mirrored.
at::Tensor shifted(const at::Tensor& image, std::int64_t down, std::int64_t right, bool mirrored) {
  const at::Tensor made = at::zeros_like(image);
  for (std::int64_t r = 0; r < image.size(1); ++r) {
    for (std::int64_t c = 0; c < image.size(2); ++c) {
      const std::int64_t from_r = r - down;
      const std::int64_t from_c = c - right;
      if (from_r < 0 || from_r >= image.size(1) || from_c < 0 || from_c >= image.size(2)) continue;
      for (std::int64_t channel = 0; channel < image.size(0); ++channel)
        made[channel][r][c].copy_(image[channel][from_r][from_c]);
    }
  }
  return mirrored ? made.flip(2) : made;
}

TEST(AugmentTest, shifts_and_mirrors_each_sample_by_seed_epoch_and_index) {
  const AugmentConfiguration configuration{.crop_padding = 1, .horizontal_flip = true};
  const std::vector<std::int64_t> samples = first(60);
  const at::Tensor images = at::rand({60, 2, 3, 4}, at::kDouble);
  const at::Tensor made = augmented(images, configuration, {5, 7}, samples);
  std::set<int> seen;
  for (std::int64_t i = 0; i < images.size(0); ++i) {
    int found = -1;
    for (int way = 0; way < 18; ++way) {
      if (made[i].equal(shifted(images[i], way % 3 - 1, way / 3 % 3 - 1, way >= 9))) found = way;
    }
    ASSERT_GE(found, 0) << "sample " << i << " is none of its eighteen forms";
    seen.insert(found);
    EXPECT_TRUE(augmented(images.narrow(0, i, 1), configuration, {5, 7},
                          std::span(samples).subspan(static_cast<std::size_t>(i), 1))[0]
                    .equal(made[i]));
  }
  EXPECT_GE(seen.size(), 15U);
  EXPECT_FALSE(augmented(images, configuration, {5, 8}, samples).equal(made)) << "another epoch";
  EXPECT_FALSE(augmented(images, configuration, {6, 7}, samples).equal(made)) << "another seed";
  EXPECT_TRUE(augmented(images, {}, {5, 7}, samples).is_same(images));
}

TEST(AugmentTest, is_for_images) {
  DatasetConfiguration configuration = synthetic();
  EXPECT_THROW(check_augmentation({.crop_padding = 1}, *open_dataset(configuration, Split::train, 1)), UserError);
  configuration.shape = {1, 5, 9};
  const auto data = open_dataset(configuration, Split::train, 1);
  EXPECT_NO_THROW(check_augmentation({.crop_padding = 4}, *data));
  EXPECT_THROW(check_augmentation({.crop_padding = 5}, *data), UserError);
}

TEST(DatasetsTest, a_missing_folder_is_named) {
  DatasetConfiguration configuration;
  configuration.path = "/nonexistent/digits";
  try {
    open_dataset(configuration, Split::train, 1);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("/nonexistent/digits"), std::string::npos);
  }
}

}  // namespace
}  // namespace onebatch
