#include "trainer/data/run_data.hpp"

#include "tests/unit/scratch_folder.hpp"
#include "trainer/base/error.hpp"
#include "trainer/data/augment.hpp"
#include "trainer/data/count_samples.hpp"
#include "trainer/data/data_report.hpp"
#include "trainer/data/padding.hpp"
#include "trainer/data/samples_kind.hpp"
#include "trainer/data/subset.hpp"
#include "trainer/io/tensor_file.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/max.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace onebatch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::int64_t> first(std::int64_t count) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(count));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

std::vector<std::int64_t> origins(const Dataset& data) {
  return origins_of(data, first(data.size()));
}

// The numbers of the samples that were drawn in some epochs.
std::vector<std::int64_t> drawn(const RunData& run, std::int64_t epochs) {
  std::vector<std::int64_t> all;
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    for (const std::int64_t sample : epoch_order(3, epoch, run.train->size(), run.drawing))
      all.push_back(run.train->origin_of(sample));
  }
  return all;
}

std::string words_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const UserError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// Changes samples by itself: what it gives says which sample it was and whether, and by what, it was changed.
class Marked final : public Dataset {
 public:
  std::int64_t size() const override { return 20; }
  std::vector<std::int64_t> sample_shape() const override { return {2}; }
  std::int64_t num_classes() const override { return 3; }
  std::optional<std::int64_t> class_of(std::int64_t sample) const override { return sample % 3; }
  std::string name_of(std::size_t /*tensor*/) const override { return "marks"; }
  std::vector<std::string> class_names() const override { return {"a", "b", "c"}; }
  bool changes_samples() const override { return true; }
  Batch gather(std::span<const std::int64_t> indices, at::ScalarType type) const override {
    return marked(indices, 0.0, type);
  }
  Batch read(std::span<const std::int64_t> indices, at::ScalarType type) const override {
    return marked(indices, 1.0, type);
  }
  Batch read_changed(std::span<const std::int64_t> indices, at::ScalarType type, const Draw& draw) const override {
    return marked(indices, 10.0 + static_cast<double>(draw.epoch), type);
  }

 private:
  static Batch marked(std::span<const std::int64_t> indices, double mark, at::ScalarType type) {
    at::Tensor values = at::full({static_cast<std::int64_t>(indices.size()), 2}, mark, type);
    for (std::size_t i = 0; i < indices.size(); ++i)
      values[static_cast<std::int64_t>(i)][0].fill_(static_cast<double>(indices[i]));
    return {{values}, at::tensor(std::vector<std::int64_t>(indices.begin(), indices.end()), at::kLong), {}};
  }
};

TEST(SubsetTest, gives_the_wholes_samples_by_their_numbers_there) {
  const auto whole = std::make_shared<Marked>();
  const Subset subset(whole, {7, 0, 19}, SampleChanges::kept);
  const std::vector<std::int64_t> some = {2, 0, 2};
  const std::vector<std::int64_t> there = {19, 7, 19};
  EXPECT_EQ(subset.size(), 3);
  EXPECT_EQ(subset.num_classes(), 3);
  EXPECT_EQ(subset.class_of(0), 1);
  EXPECT_EQ(subset.origin_of(2), 19);
  EXPECT_EQ(subset.name_of(0), "marks");
  EXPECT_THAT(subset.class_names(), ElementsAre("a", "b", "c"));
  EXPECT_TRUE(subset.changes_samples());
  const auto same = [](const Batch& one, const Batch& other) {
    return one.inputs[0].equal(other.inputs[0]) && one.targets.equal(other.targets);
  };
  EXPECT_TRUE(same(subset.gather(some, at::kFloat), whole->gather(there, at::kFloat)));
  EXPECT_TRUE(same(subset.gather_cut(some, at::kFloat, 1), whole->gather_cut(there, at::kFloat, 1)));
  EXPECT_TRUE(same(subset.read(some, at::kFloat), whole->read(there, at::kFloat)));
  EXPECT_TRUE(same(subset.read_changed(some, at::kFloat, {1, 4}), whole->read_changed(there, at::kFloat, {1, 4})));
  EXPECT_TRUE(
      same(TrainingData(subset, {}, {1, 4}).read(some, at::kFloat), whole->read_changed(there, at::kFloat, {1, 4})));
}

TEST(SubsetTest, for_validation_changes_nothing) {
  const auto whole = std::make_shared<Marked>();
  const Subset subset(whole, {7, 0, 19}, SampleChanges::none);
  EXPECT_FALSE(subset.changes_samples());
  for (const Batch& batch :
       {subset.read_changed(first(3), at::kFloat, {1, 4}), TrainingData(subset, {}, {1, 4}).read(first(3), at::kFloat)})
    EXPECT_TRUE(batch.inputs[0].equal(whole->read(std::vector<std::int64_t>{7, 0, 19}, at::kFloat).inputs[0]));
}

TEST(SubsetTest, a_number_outside_is_refused) {
  const auto whole = std::make_shared<Marked>();
  EXPECT_THROW(Subset(whole, {0, 20}, SampleChanges::kept), std::out_of_range);
  EXPECT_THROW(Subset(whole, {-1}, SampleChanges::kept), std::out_of_range);
  EXPECT_THROW(Subset(whole, {1}, SampleChanges::kept).gather(first(2), at::kFloat), std::out_of_range);
}

TEST(SubsetTest, images_are_changed_as_in_the_whole) {
  DataConfiguration configuration;
  configuration.train.kind = "synthetic";
  configuration.train.shape = {2, 6, 7};
  configuration.train.size = 300;
  const AugmentConfiguration augment{.crop_padding = 2, .horizontal_flip = true};
  const RunData all = open_run_data(configuration, 5);
  configuration.sampling.fraction = 0.2;
  const RunData part = open_run_data(configuration, 5);
  ASSERT_EQ(part.train->size(), 60);
  const Batch found = TrainingData(*part.train, augment, {5, 3}).read(first(60), at::kFloat);
  const Batch wanted = TrainingData(*all.train, augment, {5, 3}).read(origins(*part.train), at::kFloat);
  EXPECT_TRUE(found.inputs[0].equal(wanted.inputs[0]));
  EXPECT_FALSE(found.inputs[0].equal(part.train->read(first(60), at::kFloat).inputs[0]));
}

class RunDataTest : public ::testing::Test {
 protected:
  RunDataTest() {
    configuration_.train.kind = "idx";
    configuration_.train.path = ONEBATCH_DIGITS;
  }

  [[nodiscard]] RunData open(std::uint64_t seed = 3, std::optional<std::int64_t> ignored = std::nullopt) const {
    return open_run_data(configuration_, seed, ignored);
  }

  [[nodiscard]] std::string refusal(std::optional<std::int64_t> ignored = std::nullopt) const {
    return words_of([&] { static_cast<void>(open(3, ignored)); });
  }

  SamplingConfiguration& wish(const SamplingConfiguration& sampling) { return configuration_.sampling = sampling; }

  void use_tensors(const std::vector<NamedTensor>& tensors) {
    save_tensors(folder_ / "data.safetensors", tensors);
    configuration_.train.kind = "safetensors";
    configuration_.train.path = (folder_ / "data.safetensors").string();
  }

  std::string holding(const std::string& text) {
    testing::write_bytes(folder_ / "numbers.txt", text);
    return (folder_ / "numbers.txt").string();
  }

  testing::ScratchFolder folder_;
  DataConfiguration configuration_;
};

TEST_F(RunDataTest, without_any_wish_the_data_are_as_they_were) {
  const RunData run = open();
  EXPECT_EQ(run.train->size(), 1500);
  EXPECT_EQ(run.validation, nullptr);
  EXPECT_EQ(run.given_samples, "none");
  EXPECT_EQ(epoch_order(3, 1, 1500, run.drawing), epoch_order(3, 1, 1500));
}

// Whatever the fractions: every sample is in one part, or in none, and each digit has its part, as brute force counts.
TEST_F(RunDataTest, no_sample_trains_and_validates) {
  for (const double validation : {0.001, 0.1, 0.5, 0.9}) {
    for (const double fraction : {0.1, 1.0}) {
      configuration_.sampling.validation_fraction = validation;
      configuration_.sampling.fraction = fraction;
      const RunData run = open();
      const auto train = origins(*run.train);
      const auto kept = origins(*run.validation);
      std::set<std::int64_t> both(train.begin(), train.end());
      both.insert(kept.begin(), kept.end());
      EXPECT_EQ(both.size(), train.size() + kept.size()) << "a sample stands twice";
      EXPECT_GE(*both.begin(), 0);
      EXPECT_LT(*both.rbegin(), 1500);
      EXPECT_EQ(run.validation->size(), std::llround(1500 * validation));
      EXPECT_EQ(run.train->size(), std::llround(fraction * static_cast<double>(1500 - run.validation->size())));
      EXPECT_EQ(count_samples(configuration_), run.train->size());
    }
  }
}

TEST_F(RunDataTest, each_digit_has_its_part_of_the_validation) {
  configuration_.sampling.validation_fraction = 0.2;
  const RunData run = open();
  std::map<std::int64_t, double> counts;
  const auto whole = open_dataset(configuration_.train, Split::train, 3);
  const at::Tensor labels = whole->gather(first(1500), at::kFloat).targets;
  for (std::int64_t i = 0; i < 1500; ++i) counts[labels[i].item<std::int64_t>()] -= 0.2;
  for (const std::int64_t sample : origins(*run.validation)) counts[labels[sample].item<std::int64_t>()] += 1.0;
  ASSERT_EQ(counts.size(), 10U);
  for (const auto& [digit, off] : counts) EXPECT_LE(std::abs(off), 1.0) << digit;
  EXPECT_EQ(run.validation->num_classes(), 10);
}

TEST_F(RunDataTest, validation_does_not_depend_on_how_much_trains) {
  configuration_.sampling.validation_fraction = 0.1;
  const auto kept = origins(*open().validation);
  const auto train = origins(*open().train);
  configuration_.sampling.fraction = 0.3;
  EXPECT_EQ(origins(*open().validation), kept);
  EXPECT_TRUE(std::ranges::includes(train, origins(*open().train)));
  EXPECT_NE(origins(*open(4).validation), kept) << "another seed";
}

TEST_F(RunDataTest, a_subset_is_as_its_file_says) {
  configuration_.sampling.subset = holding("9 3\n1200 # the last\n");
  configuration_.sampling.order = Sampling::sequential;
  const RunData run = open();
  EXPECT_THAT(drawn(run, 2), ElementsAre(9, 3, 1200, 9, 3, 1200));
  EXPECT_NE(run.given_samples, "none");
  EXPECT_EQ(count_samples(configuration_), 3);
  configuration_.sampling.subset = holding("9 3 1201");
  EXPECT_NE(open().given_samples, run.given_samples);
  configuration_.sampling.subset = holding("1500");
  EXPECT_THAT(refusal(), HasSubstr("numbers.txt:1: \"1500\" is no sample: write whole numbers from 0 to 1499"));
}

// 90 of class 0, 9 of class 1, 1 of class 2, and 20 that are ignored. In a balanced order each class has a third of 120
// x 200 draws: the statistic of a chi-square test with 2 degrees of freedom, above 13.8 in one of a thousand cases.
TEST_F(RunDataTest, balanced_classes_come_equally_often) {
  std::vector<std::int64_t> labels(120, 0);
  std::fill(labels.begin() + 90, labels.begin() + 99, 1);
  labels[99] = 2;
  std::fill(labels.begin() + 100, labels.end(), 255);
  use_tensors({{"x", at::zeros({120, 2})}, {"y", at::tensor(labels, at::kLong)}});
  configuration_.sampling.order = Sampling::balanced;
  std::map<std::int64_t, double> counts;
  for (const std::int64_t sample : drawn(open(3, 255), 200)) ++counts[labels[static_cast<std::size_t>(sample)]];
  EXPECT_EQ(counts.count(255), 0U) << "what is ignored is not drawn";
  double statistic = 0.0;
  for (const auto& [of_class, count] : counts) statistic += (count - 8000.0) * (count - 8000.0) / 8000.0;
  EXPECT_EQ(counts.size(), 3U);
  EXPECT_LT(statistic, 13.8);
}

TEST_F(RunDataTest, weights_are_those_of_the_samples_that_are_left) {
  std::vector<double> weights(50, 0.0);
  weights[7] = 1.0;
  weights[30] = 3.0;
  use_tensors(
      {{"x", at::zeros({50, 2})}, {"y", at::zeros({50}, at::kLong)}, {"often", at::tensor(weights, at::kDouble)}});
  configuration_.sampling.order = Sampling::weighted;
  configuration_.sampling.weights = "often";
  const RunData all = open();
  std::map<std::int64_t, int> counts;
  for (const std::int64_t sample : drawn(all, 100)) ++counts[sample];
  EXPECT_EQ(counts.size(), 2U);
  EXPECT_NEAR(counts[30], 3750, 5 * 31);  // of 5000 draws, three in four; standard deviation 31
  configuration_.sampling.subset = holding("3 30 5");
  const RunData part = open();
  for (const std::int64_t sample : drawn(part, 5)) EXPECT_EQ(sample, 30);
  configuration_.sampling.weights = (folder_ / "often.txt").string();
  std::string lines;
  for (const double weight : weights) lines += std::to_string(weight) + "\n";
  testing::write_bytes(folder_ / "often.txt", lines);
  EXPECT_EQ(open().given_samples, part.given_samples) << "the same numbers from a text file";
}

TEST_F(RunDataTest, what_cannot_be_is_said) {
  configuration_.sampling.fraction = 1e-4;
  EXPECT_THAT(refusal(), HasSubstr("data.fraction = 0.0001 of 1500 samples leaves none to train with"));
  wish({}).validation_fraction = 1.0;
  EXPECT_THAT(refusal(), HasSubstr("data.validation.fraction = 1 of 1500 samples leaves none to train with"));
  wish({}).validation_fraction = 1e-4;
  EXPECT_THAT(refusal(), HasSubstr("leaves none to validate with"));
  wish({}).order = Sampling::weighted;
  EXPECT_THAT(refusal(), HasSubstr("needs data.sample_weights"));
  configuration_.sampling.weights = holding("1 2 3");
  EXPECT_THAT(refusal(), HasSubstr("holds 3 numbers, but the training data has 1500 samples"));
  use_tensors({{"x", at::zeros({3, 2})}, {"y", at::zeros({3, 2}, at::kLong)}, {"w", at::zeros({3})}});
  wish({}).order = Sampling::balanced;
  EXPECT_THAT(refusal(), HasSubstr("is for samples of one class each"));
  wish({}).order = Sampling::weighted;
  configuration_.sampling.weights = "w";
  EXPECT_THAT(refusal(), HasSubstr("all are 0"));
  configuration_.sampling.weights = holding("1 nan 2");
  EXPECT_THAT(refusal(), HasSubstr("sample 1 has nan"));
  configuration_.sampling.weights = holding("1 2 -0.5");
  EXPECT_THAT(refusal(), HasSubstr("sample 2 has -0.5"));
  configuration_.sampling.weights = "x";
  EXPECT_THAT(refusal(), HasSubstr("must be one number for each sample"));
}

TEST_F(RunDataTest, sequences_of_a_subset_keep_their_lengths) {
  const at::Tensor lengths = at::tensor({3, 9, 1, 7, 9, 2, 8}, at::kLong);
  use_tensors({{"x", at::rand({7, 9, 2})}, {"y", at::zeros({7}, at::kLong)}, {"n", lengths}});
  configuration_.train.lengths = "n";
  configuration_.sampling.subset = holding("5 0 3 6 2");
  const RunData run = open();
  EXPECT_THAT(std::vector<std::int64_t>(run.train->lengths().begin(), run.train->lengths().end()),
              ElementsAre(2, 3, 7, 8, 1));
  EXPECT_EQ(longest_of(*run.train), 8);
  EXPECT_THAT(run.train->costliest(7), ElementsAre(3, 2, 1, 0, 4, 3, 2));
  EXPECT_EQ(run.train->gather(std::vector<std::int64_t>{1, 2}, at::kFloat).inputs[0].size(1), 7);
  EXPECT_EQ(run.train->gather_cut(std::vector<std::int64_t>{1}, at::kFloat, 5).inputs[0].size(1), 5);
}

// Sample i of 100: an image [3, 4, 5] of i + channel / 10, of class i modulo 4; every ninth cannot be read.
void register_broken_images() {
  static const bool done = [] {
    register_kind(samples_kind("broken_images", [](const OpenRequest&) {
      Samples samples(100, [](std::span<const std::int64_t> indices) {
        Batch batch{{at::zeros({static_cast<std::int64_t>(indices.size()), 3, 4, 5})},
                    at::zeros({static_cast<std::int64_t>(indices.size())}, at::kLong),
                    {}};
        for (std::size_t i = 0; i < indices.size(); ++i) {
          if (indices[i] % 9 == 8) throw UserError("image " + std::to_string(indices[i]) + ".jpg is cut off");
          const auto row = static_cast<std::int64_t>(i);
          batch.inputs[0][row].add_(
              at::arange(3, at::kFloat).mul_(0.1).add_(static_cast<double>(indices[i])).view({3, 1, 1}));
          batch.targets[row].fill_(indices[i] % 4);
        }
        return batch;
      });
      samples.num_classes = 4;
      return samples;
    }));
    return true;
  }();
  ASSERT_TRUE(done);
}

TEST(CommonFilesTest, what_trains_does_not_validate) {
  const testing::ScratchFolder folder;
  for (const char* name : {"a.safetensors", "b.safetensors"})
    save_tensors(folder / name, {{"x", at::rand({4, 2})}, {"y", at::arange(4)}}, {});
  DataConfiguration data;
  data.train.kind = "safetensors";
  data.train.path = folder.path().string();
  data.validation = data.train;
  data.validation->path = (folder.path() / "." / "b.safetensors").string();
  EXPECT_THAT(words_of([&] { open_run_data(data, 1, {}); }),
              HasSubstr("b.safetensors is among the files of data.path"));
  data.train.path = (folder / "a.safetensors").string();
  EXPECT_EQ(open_run_data(data, 1, {}).validation->size(), 4);
}

TEST(CommonFilesTest, nor_does_an_image_of_the_training_folder) {
  const testing::ScratchFolder folder;
  for (const char* name : {"train/cat", "train/dog", "other/cat", "other/dog"})
    std::filesystem::create_directories(folder / name);
  const std::string image = "which nobody looks into";
  for (const char* name : {"train/cat/1.png", "train/dog/2.png", "other/cat/1.png"})
    testing::write_bytes(folder / name, image);
  const auto words = [&](const char* validation, const std::string& list) {
    if (!list.empty()) testing::write_bytes(folder / validation, list);
    DataConfiguration data;
    data.train.kind = "image_folder";
    data.train.path = (folder / "train").string();
    data.train.image_size = {4, 4};
    data.validation = data.train;
    data.validation->path = (folder / validation).string();
    return words_of([&] { open_run_data(data, 1, {}); });
  };
  const auto refused = HasSubstr("1.png is among the files of data.path");
  EXPECT_THAT(words("val.csv", "path,label\ntrain/cat/1.png,cat\n"), refused);
  EXPECT_THAT(words("train/../train/", ""), refused);
  EXPECT_EQ(words("other", ""), "nothing was thrown") << "a class without images, too";
  EXPECT_EQ(words("val.csv", "path,label\nother/cat/1.png,cat\n"), "nothing was thrown");
}

// One image of 2 x 2 pixels and its label.
void write_idx_pair(const std::filesystem::path& folder, const std::string& split, char brightest) {
  std::filesystem::create_directories(folder);
  const auto number = [](char value) { return std::string(3, '\0') + value; };
  testing::write_bytes(folder / (split + "-images-idx3-ubyte"), std::string("\0\0\x08\x03", 4) + number(1) + number(2) +
                                                                    number(2) + std::string("\0\1\2", 3) + brightest);
  testing::write_bytes(folder / (split + "-labels-idx1-ubyte"),
                       std::string("\0\0\x08\x01", 4) + number(1) + std::string(1, '\0'));
}

TEST(IdxScaleTest, images_that_validate_are_scaled_as_those_that_train) {
  const testing::ScratchFolder folder;
  write_idx_pair(folder / "train", "train", 100);
  write_idx_pair(folder / "held", "t10k", 50);
  write_idx_pair(folder / "held", "train", 60);  // of another data set
  DataConfiguration data;
  data.train.kind = "idx";
  data.train.path = (folder / "train").string();
  data.validation = data.train;
  data.validation->path = (folder / "held").string();
  const RunData run = open_run_data(data, 1, {});
  const std::int64_t first = 0;
  EXPECT_EQ(run.train->gather({&first, 1}, at::kDouble).inputs[0].max().item<double>(), 1.0);
  EXPECT_EQ(run.validation->gather({&first, 1}, at::kDouble).inputs[0].max().item<double>(), 0.5);
}

TEST(DataReportTest, tells_what_is_there_and_what_cannot_be_read) {
  register_broken_images();
  DataConfiguration configuration;
  configuration.train.kind = "broken_images";
  configuration.sampling.order = Sampling::sequential;
  const DataReport report = report_data(configuration, 1, {.seconds_of_reading = 0.01, .sheet = WithSheet::yes});
  const SplitReport& train = report.train;
  EXPECT_EQ(train.samples, 100);
  EXPECT_EQ(train.num_broken, 11);  // 8, 17, … 98
  ASSERT_EQ(train.broken.size(), 10U);
  EXPECT_EQ(train.broken[1].sample, 17);
  EXPECT_EQ(train.broken[1].reason, "image 17.jpg is cut off");
  ASSERT_EQ(train.columns.size(), 2U);
  EXPECT_EQ(train.columns[0].type, "float32");
  EXPECT_THAT(train.columns[0].shape, ElementsAre(3, 4, 5));
  std::map<std::int64_t, std::int64_t> classes;
  double sum = 0.0;
  for (std::int64_t i = 0; i < 100; ++i) {
    if (i % 9 == 8) continue;
    ++classes[i % 4];
    sum += static_cast<double>(i);
  }
  for (const ClassCount& one : train.classes) EXPECT_EQ(one.samples, classes.at(one.index));
  EXPECT_EQ(train.classes.size(), 4U);
  ASSERT_EQ(train.ranges.size(), 3U);
  EXPECT_NEAR(train.ranges[2].least, 0.2, 1e-6);
  EXPECT_NEAR(train.ranges[2].largest, 99.2, 1e-5);
  EXPECT_NEAR(train.ranges[2].mean, sum / 89.0 + 0.2, 1e-5);
  ASSERT_EQ(report.reading.size(), 3U);
  for (const ReadingSpeed& one : report.reading) EXPECT_GE(one.samples_per_second, 0.0);
  ASSERT_TRUE(report.sheet);
  EXPECT_EQ(report.sheet->channels, 3U);
  EXPECT_EQ(report.sheet->pixels.size(), std::size_t{3} * report.sheet->width * report.sheet->height);
}

TEST(DataReportTest, a_sheet_is_of_images) {
  DataConfiguration configuration;
  configuration.train.kind = "synthetic";
  configuration.train.shape = {7};
  EXPECT_THAT(words_of([&] { report_data(configuration, 1, {.sheet = WithSheet::yes}); }),
              HasSubstr("--sheet is for images"));
}

TEST(DataReportTest, lengths_are_ranked_as_the_definition_says) {
  const testing::ScratchFolder folder;
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 1; i <= 40; ++i) lengths.push_back(41 - i);
  save_tensors(folder / "data", {{"x", at::zeros({40, 40})}, {"n", at::tensor(lengths, at::kLong)}});
  DataConfiguration configuration;
  configuration.train.kind = "safetensors";
  configuration.train.path = (folder / "data").string();
  configuration.train.target = "";
  configuration.train.lengths = "n";
  const DataReport report = report_data(configuration, 1, {.most_samples = 7, .seconds_of_reading = 0.01});
  ASSERT_TRUE(report.train.lengths);
  EXPECT_EQ(report.train.lengths->least, 1);
  EXPECT_EQ(report.train.lengths->median, 20);
  EXPECT_EQ(report.train.lengths->upper, 38);  // of 40 samples 38 are 95 %
  EXPECT_EQ(report.train.lengths->most, 40);
  EXPECT_EQ(report.train.read, 7);
  EXPECT_EQ(report.train.samples, 40);
}

}  // namespace
}  // namespace onebatch
