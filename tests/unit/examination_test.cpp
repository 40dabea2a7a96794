#include "trainer/graph/examination.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace onebatch {
namespace {

TEST(ExaminationTest, survives_the_round_trip) {
  Examination examination;
  examination.examined = true;
  examination.findings = {{Trait::draws_unkeyed, "aten::rand_like", "layer1.0", ""},
                          {Trait::hidden_state, "", "", "self.count"}};
  examination.batch_norm_layers = {"bn1"};
  examination.batch_norm_statistics = {"bn1.running_mean", "bn1.running_var"};
  const Examination read = Examination::from_text(examination.to_text());
  EXPECT_TRUE(read.examined);
  EXPECT_EQ(read.findings, examination.findings);
  EXPECT_EQ(read.batch_norm_layers, examination.batch_norm_layers);
  EXPECT_EQ(read.batch_norm_statistics, examination.batch_norm_statistics);
}

TEST(ExaminationTest, tabs_and_line_ends_in_names_become_spaces) {
  Examination examination;
  examination.why_not = "no\tforward\nat all";
  examination.batch_norm_layers = {"a\tb\nc"};
  const Examination read = Examination::from_text(examination.to_text());
  EXPECT_FALSE(read.examined);
  EXPECT_EQ(read.why_not, "no forward");
  EXPECT_EQ(read.batch_norm_layers, std::vector<std::string>{"a b c"});
}

TEST(ExaminationTest, what_is_no_examination_is_refused) {
  for (const char* wrong :
       {"\n", "failed\n", "layer\n", "sings\ta\n", "finding\n", "finding\tsings\ta\tb\tc\n", "examined\t\n"})
    EXPECT_THROW(Examination::from_text(wrong), std::invalid_argument) << wrong;
}

}  // namespace
}  // namespace onebatch
