#include "trainer/base/name_patterns.hpp"

#include <gmock/gmock.h>

namespace onebatch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(NamePatternsTest, a_star_is_any_text_and_a_question_mark_one_character) {
  EXPECT_TRUE(matches_name("layer?.*", "layer1.0.weight"));
  EXPECT_FALSE(matches_name("layer?.*", "layer10.weight"));
  EXPECT_FALSE(matches_name("fc", "fc.weight"));
  EXPECT_TRUE(matches_name("*", "fc.weight"));
  EXPECT_FALSE(matches_name("", "fc.weight"));
}

TEST(NamePatternsTest, a_name_matches_itself_whatever_it_has) {
  EXPECT_TRUE(matches_name("a[0].weight", "a[0].weight"));
}

TEST(NamePatternsTest, the_nearest_names_come_first_and_equal_ones_in_their_order) {
  const std::vector<std::string> names = {"body.weight", "classifier.weight", "classifier.bias"};
  EXPECT_THAT(names_like("clasifier.*", names, 2), ElementsAre("classifier.weight", "classifier.bias"));
  EXPECT_THAT(names_like("", names, 9), ElementsAre("body.weight", "classifier.weight", "classifier.bias"));
  EXPECT_THAT(names_like("fc", {}, 3), IsEmpty());
}

TEST(NamePatternsTest, a_list_counts_what_it_leaves_out) {
  EXPECT_EQ(listed({}), "");
  EXPECT_EQ(listed({"a", "b"}), "a, b");
  EXPECT_EQ(listed({"a", "b", "c"}, 1), "a and 2 more");
}

}  // namespace
}  // namespace onebatch
