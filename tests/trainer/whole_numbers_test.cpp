#include "trainer/models/whole_numbers.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

namespace onebatch {
namespace {

TEST(WholeNumbersTest, the_first_number_beyond_a_type_is_named) {
  EXPECT_EQ(beyond_type(at::tensor({0, 255, 256, -1}, at::kLong), at::kByte),
            "is Byte, which holds 0 to 255, and is given 256");
  EXPECT_EQ(beyond_type(at::tensor({-129}, at::kShort), at::kChar),
            "is Char, which holds -128 to 127, and is given -129");
  EXPECT_EQ(beyond_type(at::tensor({2}, at::kByte), at::kBool), "is Bool, which holds 0 to 1, and is given 2");
  EXPECT_EQ(beyond_type(at::tensor({std::int64_t{1} << 31}, at::kLong), at::kInt),
            "is Int, which holds -2147483648 to 2147483647, and is given 2147483648");
}

TEST(WholeNumbersTest, what_fits_or_is_no_whole_number_is_not_judged) {
  EXPECT_EQ(beyond_type(at::tensor({0, 255}, at::kLong), at::kByte), "");
  EXPECT_EQ(beyond_type(at::tensor({0, 1}, at::kLong).to(at::kBool), at::kByte), "");
  EXPECT_EQ(beyond_type(at::empty({0}, at::kLong), at::kBool), "");
  EXPECT_EQ(beyond_type(at::tensor({1e9}), at::kByte), "");
  EXPECT_EQ(beyond_type(at::tensor({1000}, at::kLong), at::kFloat), "");
}

TEST(WholeNumbersTest, whole_numbers_and_booleans_alone_get_another_type) {
  EXPECT_TRUE(in_whole_type(at::tensor({0, 1}, at::kLong), at::kBool).equal(at::tensor({0, 1}).to(at::kBool)));
  EXPECT_EQ(in_whole_type(at::ones({2}, at::kBool), at::kLong).scalar_type(), at::kLong);
  EXPECT_EQ(in_whole_type(at::ones({2}, at::kFloat), at::kLong).scalar_type(), at::kFloat);
  EXPECT_EQ(in_whole_type(at::ones({2}, at::kLong), at::kFloat).scalar_type(), at::kLong);
}

TEST(WholeNumbersTest, types_are_found_by_pytorchs_names) {
  EXPECT_EQ(whole_type_named("uint8"), at::kByte);
  EXPECT_EQ(whole_type_named("bool"), at::kBool);
  EXPECT_EQ(whole_type_named("int64"), at::kLong);
  EXPECT_EQ(whole_type_named("float32"), std::nullopt);
}

}  // namespace
}  // namespace onebatch
