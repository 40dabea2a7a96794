#include "trainer/data/selection.hpp"

#include "tests/unit/scratch_folder.hpp"
#include "trainer/base/error.hpp"
#include "trainer/data/number_file.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <numeric>

namespace onebatch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ScratchFolder;

std::vector<std::int64_t> first(std::int64_t count) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

std::map<std::int64_t, std::int64_t> counts_of(const std::vector<std::int64_t>& samples,
                                               const std::vector<std::int64_t>& classes) {
  std::map<std::int64_t, std::int64_t> counts;
  for (const std::int64_t sample : samples) ++counts[classes[static_cast<std::size_t>(sample)]];
  return counts;
}

TEST(SelectionTest, a_split_has_each_sample_once) {
  for (const std::int64_t size : {1, 2, 7, 1000}) {
    for (const double fraction : {0.0, 0.1, 0.5, 0.999, 1.0}) {
      const SplitSamples split = split_samples(first(size), {}, fraction, 3);
      EXPECT_EQ(split.chosen.size(), static_cast<std::size_t>(std::llround(fraction * static_cast<double>(size))));
      std::vector<std::int64_t> both = split.chosen;
      both.insert(both.end(), split.others.begin(), split.others.end());
      EXPECT_TRUE(std::ranges::is_sorted(split.chosen) && std::ranges::is_sorted(split.others));
      std::ranges::sort(both);
      EXPECT_EQ(both, first(size)) << size << " " << fraction;
    }
  }
}

TEST(SelectionTest, is_a_function_of_the_key_and_of_the_samples_numbers) {
  const auto all = first(400);
  EXPECT_EQ(split_samples(all, {}, 0.25, 3).chosen, split_samples(all, {}, 0.25, 3).chosen);
  EXPECT_NE(split_samples(all, {}, 0.25, 3).chosen, split_samples(all, {}, 0.25, 4).chosen);
  auto backwards = all;
  std::ranges::reverse(backwards);
  auto chosen = split_samples(backwards, {}, 0.25, 3).chosen;
  std::ranges::reverse(chosen);
  EXPECT_EQ(chosen, split_samples(all, {}, 0.25, 3).chosen) << "in another order the same are drawn";
}

// 40, 400, 1000 and 3 samples in classes 0, 1, 2, 9. A tenth of 1443 is 144; a class's part is off its tenth by what
// the others are rounded by, at most one for each.
TEST(SelectionTest, each_class_has_its_part) {
  std::vector<std::int64_t> classes;
  for (const auto& [of_class, count] : std::map<std::int64_t, int>{{0, 40}, {1, 400}, {2, 1000}, {9, 3}})
    classes.insert(classes.end(), static_cast<std::size_t>(count), of_class);
  const auto whole = counts_of(first(1443), classes);
  for (std::uint64_t key = 0; key < 50; ++key) {
    const SplitSamples split = split_samples(first(1443), classes, 0.1, key);
    EXPECT_EQ(split.chosen.size(), 144U);
    const auto chosen = counts_of(split.chosen, classes);
    for (const auto& [of_class, count] : whole) {
      const auto found = chosen.find(of_class);
      EXPECT_NEAR(found == chosen.end() ? 0.0 : static_cast<double>(found->second), 0.1 * static_cast<double>(count),
                  3.0)
          << "class " << of_class << ", key " << key;
    }
  }
}

TEST(SelectionTest, classes_of_one_size_have_equal_parts) {
  std::vector<std::int64_t> classes;
  for (std::int64_t i = 0; i < 1000; ++i) classes.push_back(i % 10);
  for (const auto& [of_class, count] : counts_of(split_samples(first(1000), classes, 0.1, 5).chosen, classes))
    EXPECT_EQ(count, 10) << of_class;
}

// A class of its own for every sample: 20,000 draws of 5 among 20, expected 5,000 each, standard deviation 61.
TEST(SelectionTest, every_sample_is_as_likely_as_another) {
  std::vector<int> counts(20, 0);
  for (std::uint64_t key = 0; key < 20000; ++key) {
    const std::vector<std::int64_t> classes = first(20);
    for (const std::int64_t sample : split_samples(first(20), classes, 0.25, key * 77 + 5).chosen)
      ++counts[static_cast<std::size_t>(sample)];
  }
  for (const int count : counts) EXPECT_NEAR(count, 5000, 5 * 61);
}

TEST(SelectionTest, a_smaller_fraction_is_part_of_a_larger) {
  std::vector<std::int64_t> classes;
  for (std::int64_t i = 0; i < 777; ++i) classes.push_back(i * i % 13);
  std::vector<std::int64_t> smaller;
  for (const double fraction : {0.01, 0.1, 0.3, 0.31, 0.8, 1.0}) {
    const auto larger = split_samples(first(777), classes, fraction, 8).chosen;
    EXPECT_TRUE(std::ranges::includes(larger, smaller)) << fraction;
    smaller = larger;
  }
}

class NumberFileTest : public ::testing::Test {
 protected:
  std::filesystem::path holding(const std::string& text) const {
    std::ofstream(folder_ / "numbers.txt", std::ios::binary) << text;
    return folder_ / "numbers.txt";
  }

  template <typename Work>
  static std::string refusal_of(const Work& work) {
    try {
      work();
    } catch (const UserError& error) {
      return error.what();
    }
    return "nothing was refused";
  }

  ScratchFolder folder_;
};

TEST_F(NumberFileTest, numbers_stand_anywhere) {
  const auto file = holding("# the good ones\n3 0\r\n\n  7,1 # and no more: 5\n2");
  EXPECT_THAT(read_sample_numbers(file, 8, "data.subset"), ElementsAre(3, 0, 7, 1, 2));
  EXPECT_EQ(count_numbers(file, "data.subset"), 5);
  EXPECT_THAT(read_numbers(holding("1\n0.5\n2e-3\n"), 3, "k"), ElementsAre(1.0, 0.5, 2e-3));
}

TEST_F(NumberFileTest, what_is_wrong_is_named_with_its_line) {
  const auto refused = [&](const std::string& text) {
    return refusal_of([&] { read_sample_numbers(holding(text), 8, "data.subset"); });
  };
  EXPECT_THAT(refused("1\n8\n"), HasSubstr("numbers.txt:2: \"8\" is no sample: write whole numbers from 0 to 7"));
  EXPECT_THAT(refused("1\n-1\n"), HasSubstr(":2: \"-1\""));
  EXPECT_THAT(refused("1\n2.5\n"), HasSubstr(":2: \"2.5\""));
  EXPECT_THAT(refused("99999999999999999999"), HasSubstr("is no sample"));
  EXPECT_THAT(refused("4\n5\n4\n"), HasSubstr(":3: \"4\" stands there twice"));
  EXPECT_THAT(refused("# none\n"), HasSubstr("holds no number"));
  EXPECT_THAT(refused(std::string(1000, 'x')), ::testing::SizeIs(::testing::Lt(300U)));
  EXPECT_THAT(refusal_of([&] { read_numbers(holding("1 2"), 3, "data.sample_weights"); }),
              HasSubstr("holds 2 numbers, but the training data has 3 samples"));
  EXPECT_THAT(refusal_of([&] { read_numbers(holding("1 a 2"), 3, "k"); }), HasSubstr("\"a\" is no number"));
  EXPECT_THAT(refusal_of([&] { read_numbers(folder_ / "none.txt", 3, "k"); }), HasSubstr("none.txt\" cannot be read"));
  EXPECT_THAT(refusal_of([&] { count_numbers(folder_ / "", "k"); }), HasSubstr("cannot be read"));
}

}  // namespace
}  // namespace onebatch
