#include "tests/unit/scratch_folder.hpp"
#include "trainer/base/error.hpp"
#include "trainer/data/augment.hpp"
#include "trainer/data/dataset_kind.hpp"
#include "trainer/data/subset.hpp"
#include "trainer/images/decode.hpp"
#include "trainer/images/image_mixing.hpp"
#include "trainer/models/loss.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>
#include <thread>

namespace onebatch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ScratchFolder;
using Indices = std::vector<std::int64_t>;

// The fuzz targets' inputs as a folder: of each format those that can be read, and one that is cut off.
class ImageDatasetTest : public ::testing::Test {
 protected:
  ImageDatasetTest() {
    for (const char* name : {"jpeg/baseline", "jpeg/cmyk", "jpeg/grey", "jpeg/turned", "png/palette_2", "png/rgb",
                             "png/turned", "webp/lossless", "webp/lossy"})
      add(name);
    data_.kind = "image_folder";
    data_.path = (folder_ / "images").string();
    data_.image_size = {9, 11};
  }

  void add(const std::string& name) const {
    const auto to = folder_ / "images" / (name + ".jpg");
    std::filesystem::create_directories(to.parent_path());
    std::filesystem::copy_file(std::filesystem::path(ONEBATCH_FUZZ_CORPUS) / name, to);
  }

  [[nodiscard]] std::unique_ptr<Dataset> open(const AugmentConfiguration& augment = {}) const {
    return open_dataset(data_, Split::train, 1, -100, augment);
  }

  static Indices all(const Dataset& data) {
    Indices indices(static_cast<std::size_t>(data.size()));
    std::iota(indices.begin(), indices.end(), 0);
    return indices;
  }

  static AugmentConfiguration everything() {
    AugmentConfiguration augment;
    augment.random_resized_crop = true;
    augment.horizontal_flip = true;
    augment.crop_padding = 2;
    augment.brightness = augment.contrast = augment.saturation = 0.4;
    augment.hue = 0.1;
    augment.rand_augment_ops = 2;
    return augment;
  }

  ScratchFolder folder_;
  DatasetConfiguration data_;
};

TEST_F(ImageDatasetTest, classes_are_known_without_reading_a_file) {
  add("png/cut_off");
  const auto data = open();
  EXPECT_EQ(data->size(), 10);
  EXPECT_EQ(data->num_classes(), 3);
  EXPECT_THAT(data->class_names(), ElementsAre("jpeg", "png", "webp"));
  EXPECT_EQ(data->class_of(0), 0);
  EXPECT_EQ(data->class_of(9), 2);
  EXPECT_EQ(data->labels()->largest.value, 2);
  EXPECT_EQ(data->labels()->largest.sample, 8);
  EXPECT_EQ(data->sample_shape(), (Indices{3, 9, 11}));
}

TEST_F(ImageDatasetTest, pixels_stay_in_8_bits_until_they_are_numbers) {
  data_.mean = {0.5, 0.25, 0.0};
  data_.deviation = {0.5, 1.0, 2.0};
  const auto data = open();
  const Batch batch = data->read(Indices{2, 5}, at::kDouble);
  ASSERT_EQ(batch.inputs[0].scalar_type(), at::kByte);
  const at::Tensor numbers = data->gather(Indices{2, 5}, at::kDouble).inputs[0];
  for (std::int64_t c = 0; c < 3; ++c) {
    const double mean = data_.mean[static_cast<std::size_t>(c)];
    const double deviation = data_.deviation[static_cast<std::size_t>(c)];
    const double pixel = batch.inputs[0][1][c][3][4].item<double>();
    EXPECT_DOUBLE_EQ(numbers[1][c][3][4].item<double>(), (pixel / 255.0 - mean) / deviation);
  }
}

TEST_F(ImageDatasetTest, what_is_drawn_depends_on_seed_epoch_and_sample_alone) {
  for (const double alpha : {0.0, 0.5}) {
    AugmentConfiguration augment = everything();
    augment.mixup_alpha = augment.cutmix_alpha = alpha;
    const auto data = open(augment);
    const Batch together = data->read_changed(all(*data), at::kDouble, {7, 3});
    std::vector<std::jthread> readers;
    for (const std::int64_t sample : all(*data)) {
      readers.emplace_back([&, sample] {
        const Batch alone = open(augment)->read_changed(Indices{sample}, at::kDouble, {7, 3});
        EXPECT_TRUE(alone.inputs[0][0].equal(together.inputs[0][sample]));
        EXPECT_TRUE(alone.targets[0].equal(together.targets[sample]));
        EXPECT_TRUE(!together.weights.defined() || alone.weights[0].equal(together.weights[sample]));
      });
    }
    readers.clear();
    EXPECT_FALSE(data->read_changed(all(*data), at::kDouble, {7, 4}).inputs[0].equal(together.inputs[0]));
    EXPECT_FALSE(data->read_changed(all(*data), at::kDouble, {8, 3}).inputs[0].equal(together.inputs[0]));
  }
}

TEST_F(ImageDatasetTest, a_mixed_sample_is_made_of_what_both_would_have_been) {
  AugmentConfiguration augment = everything();
  augment.mixup_alpha = 1.0;
  const at::Tensor plain =
      open(everything())->read_changed(Indices{0, 1, 2, 3, 4, 5, 6, 7, 8}, at::kDouble, {1, 0}).inputs[0];
  const auto data = open(augment);
  for (const std::int64_t sample : all(*data)) {
    const Batch batch = data->read_changed(Indices{sample}, at::kDouble, {1, 0});
    const Mix mix = draw_mix(augment, {1, 0, sample}, data->size(), {9, 11});
    const at::Tensor expected =
        plain[sample].to(at::kDouble).mul(mix.share).add(plain[mix.partner].to(at::kDouble).mul(1.0 - mix.share));
    EXPECT_LE(batch.inputs[0][0].to(at::kDouble).sub(expected).abs().max().item<double>(), 0.5 + 1e-9);
    EXPECT_EQ(batch.targets[0][0].item<std::int64_t>(), data->class_of(sample));
    EXPECT_EQ(batch.targets[0][1].item<std::int64_t>(), data->class_of(mix.partner));
    EXPECT_DOUBLE_EQ(batch.weights[0][0].item<double>(), mix.share);
    EXPECT_DOUBLE_EQ(batch.weights[0].sum().item<double>(), 1.0);
  }
}

TEST_F(ImageDatasetTest, samples_are_mixed_with_those_alone_that_are_trained_with) {
  AugmentConfiguration augment;
  augment.mixup_alpha = augment.cutmix_alpha = 1.0;
  const std::shared_ptr<const Dataset> whole = open(augment);
  const Subset some(whole, {0, 1, 2, 3}, SampleChanges::kept);  // all of the first class
  for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
    const Batch batch = some.read_changed(all(some), at::kFloat, {3, epoch});
    EXPECT_TRUE(batch.targets.eq(0).all().item<bool>()) << "epoch " << epoch;
  }
  bool others = false;
  for (std::int64_t epoch = 0; epoch < 20; ++epoch)
    others |= whole->read_changed(all(some), at::kFloat, {3, epoch}).targets.ne(0).any().item<bool>();
  EXPECT_TRUE(others) << "of all samples some partner is of another class";
}

TEST_F(ImageDatasetTest, a_broken_file_stops_or_weighs_nothing_and_is_named_once) {
  add("png/cut_off");
  try {
    static_cast<void>(open()->read(Indices{4}, at::kFloat));
    FAIL();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("cut_off.jpg is cut off"));
  }
  data_.on_broken = OnBroken::skip;
  const auto data = open();
  for (int i = 0; i < 2; ++i) {
    const Batch batch = data->read(Indices{3, 4, 5}, at::kFloat);
    EXPECT_TRUE(batch.weights.equal(at::tensor({1.0F, 0.0F, 1.0F})));
    EXPECT_TRUE(batch.targets.equal(at::tensor(Indices{0, -100, 1}, at::kLong)));
    EXPECT_TRUE(batch.inputs[0][1].eq(128).all().item<bool>());
  }
  EXPECT_TRUE(data->has_complaints());
  EXPECT_THAT(data->take_complaints(), ElementsAre(HasSubstr("cut_off.jpg is cut off")));
  EXPECT_THAT(data->take_complaints(), IsEmpty());
}

// Of a linear model, divided by the weight: what a step is made of.
at::Tensor gradient_of(const std::vector<Batch>& parts, const Loss& loss) {
  const at::Tensor matrix = at::arange(3 * 9 * 11 * 3, at::kDouble).sin().mul(0.02).view({-1, 3}).requires_grad_(true);
  double weight = 0.0;
  for (const Batch& part : parts) {
    const Batch batch = part.to_numbers(at::kDouble);
    weight += loss.weight(batch.targets, batch.weights);
    loss.sum(batch.inputs[0].flatten(1).matmul(matrix), batch.targets, batch.weights).backward();
  }
  return matrix.grad().div(weight);
}

double relative_difference(const at::Tensor& a, const at::Tensor& b) {
  return a.sub(b).norm().item<double>() / b.norm().item<double>();
}

TEST_F(ImageDatasetTest, a_skipped_file_leaves_the_gradient_of_the_others) {
  add("png/cut_off");
  const auto stopping = open(everything());
  data_.on_broken = OnBroken::skip;
  const auto data = open(everything());
  for (const NormalizeBy by : {NormalizeBy::tokens, NormalizeBy::samples}) {
    LossConfiguration configuration;
    configuration.normalize_by = by;
    const Loss loss(configuration, 3);
    const Draw draw{3, 1};
    const at::Tensor with = gradient_of({data->read_changed(all(*data), at::kDouble, draw)}, loss);
    // Those that can be read stay what they are, drawn by their places in the whole folder.
    const at::Tensor without =
        gradient_of({stopping->read_changed(Indices{0, 1, 2, 3, 5, 6, 7, 8, 9}, at::kDouble, draw)}, loss);
    EXPECT_LT(relative_difference(with, without), 1e-14);
  }
}

TEST_F(ImageDatasetTest, parts_of_a_mixed_batch_have_the_gradient_of_the_whole) {
  AugmentConfiguration augment = everything();
  augment.mixup_alpha = augment.cutmix_alpha = 0.7;
  const auto data = open(augment);
  const Loss loss({}, 3);
  const Draw draw{3, 1};
  const auto read = [&](const Indices& samples) { return data->read_changed(samples, at::kDouble, draw); };
  const at::Tensor whole = gradient_of({read(all(*data))}, loss);
  EXPECT_LT(relative_difference(gradient_of({read({4, 7}), read({0, 1, 2, 3}), read({8}), read({6, 5})}, loss), whole),
            1e-14);
}

TEST_F(ImageDatasetTest, validation_takes_the_training_datas_classes) {
  std::filesystem::create_directories(folder_ / "other/webp");
  std::filesystem::copy_file(std::filesystem::path(ONEBATCH_FUZZ_CORPUS) / "webp/lossy", folder_ / "other/webp/1.jpg");
  DatasetConfiguration validation = data_;
  validation.path = (folder_ / "other").string();
  const auto open_with = [&](const std::vector<std::string>& classes) {
    return open_dataset(validation, {Split::validation, 1, {}, {}, classes});
  };
  EXPECT_EQ(open_with(open()->class_names())->class_of(0), 2);
  EXPECT_EQ(open_with(open()->class_names())->num_classes(), 3);
  EXPECT_THROW(open_with({"jpeg", "png"}), UserError);
  EXPECT_NE(open_with({"png", "webp"})->digest(), open_with({"jpeg", "webp"})->digest());
}

// A PNG may say its orientation before its image data or behind them.
TEST(PngTest, is_turned_wherever_its_exif_block_stands) {
  const std::string before = testing::read_bytes(std::filesystem::path(ONEBATCH_FUZZ_CORPUS) / "png/turned");
  const std::size_t begin = before.find("eXIf") - 4;
  const std::string block = before.substr(begin, before.find("IDAT") - 4 - begin);
  std::string behind = before;
  behind.erase(begin, block.size());
  behind.insert(behind.find("IEND") - 4, block);
  const auto decoded = [](const std::string& bytes) {
    return decode_image(std::vector<std::uint8_t>(bytes.begin(), bytes.end()), k_most_pixels);
  };
  const Image image = decoded(behind);
  EXPECT_EQ(image.height, 17) << "12 rows of 17 pixels, turned";
  EXPECT_EQ(image.pixels, decoded(before).pixels);
}

TEST_F(ImageDatasetTest, one_channel_is_grey) {
  data_.channels = 1;
  const auto data = open();
  EXPECT_EQ(data->read(Indices{1}, at::kFloat).inputs[0].sizes(), at::IntArrayRef({1, 1, 9, 11}));
}

}  // namespace
}  // namespace onebatch
