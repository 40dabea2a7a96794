#include "trainer/models/run_type.hpp"

#include <gtest/gtest.h>

namespace onebatch {
namespace {

TEST(RunTypeTest, the_programs_type_becomes_the_runs) {
  EXPECT_EQ(run_type(at::kFloat, at::kFloat, at::kBFloat16), at::kBFloat16);
  EXPECT_EQ(run_type(at::kBFloat16, at::kBFloat16, at::kDouble), at::kDouble);
}

TEST(RunTypeTest, what_is_wider_than_program_and_run_stays) {
  EXPECT_EQ(run_type(at::kDouble, at::kFloat, at::kFloat), at::kDouble);
  EXPECT_EQ(run_type(at::kDouble, at::kFloat, at::kBFloat16), at::kDouble);
  EXPECT_EQ(run_type(at::kFloat, at::kBFloat16, at::kBFloat16), at::kFloat);
  EXPECT_EQ(run_type(at::kBFloat16, at::kHalf, at::kHalf), at::kBFloat16);
}

TEST(RunTypeTest, what_one_of_them_holds_becomes_the_runs) {
  EXPECT_EQ(run_type(at::kFloat, at::kBFloat16, at::kDouble), at::kDouble);
  EXPECT_EQ(run_type(at::kHalf, at::kFloat, at::kDouble), at::kDouble);
  EXPECT_EQ(run_type(at::kHalf, at::kFloat, at::kBFloat16), at::kBFloat16);
  EXPECT_EQ(run_type(at::kFloat, at::kDouble, at::kHalf), at::kHalf);
}

TEST(RunTypeTest, what_is_not_floating_or_of_8_bits_stays) {
  EXPECT_EQ(run_type(at::kLong, at::kFloat, at::kHalf), at::kLong);
  EXPECT_EQ(run_type(at::kComplexFloat, at::kFloat, at::kDouble), at::kComplexFloat);
  EXPECT_EQ(run_type(at::kFloat8_e5m2, at::kFloat, at::kHalf), at::kFloat8_e5m2);
}

}  // namespace
}  // namespace onebatch
