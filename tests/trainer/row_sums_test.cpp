#include "trainer/device/row_sums.hpp"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <vector>

namespace onebatch {
namespace {

class RowSumsTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  at::Tensor numbers(at::IntArrayRef sizes) { return at::randn(sizes, at::dtype(GetParam())); }
};

TEST_P(RowSumsTest, add_what_libtorch_adds_at_indices) {
  for (const std::int64_t columns : {1, 7, 300}) {
    const at::Tensor sum = numbers({11, columns});
    const at::Tensor rows = at::randint(-11, 11, {6, 50}, at::kLong);
    const at::Tensor values = numbers({50, 6, columns}).transpose(0, 1);  // which lie otherwise
    const at::Tensor expected = sum.to(at::kDouble).index_put({rows}, values.to(at::kDouble), true);
    add_rows(sum, rows, values);
    const double limit = GetParam() == at::kDouble ? 1e-14 : 1e-5;
    EXPECT_TRUE(sum.to(at::kDouble).allclose(expected, limit, limit)) << columns;
  }
}

TEST_P(RowSumsTest, are_native_code_s_to_call) {
  const auto called = c10::Dispatcher::singleton()
                          .findSchemaOrThrow("onebatch::add_rows", "")
                          .typed<void(const at::Tensor&, const at::Tensor&, const at::Tensor&)>();
  const at::Tensor sum = at::ones({2, 3}, at::dtype(GetParam()));
  called.call(sum, at::ones({1}, at::kLong), at::ones({1, 3}, sum.options()));
  EXPECT_EQ(sum[1].sum().item<double>(), 6.0);
}

TEST_P(RowSumsTest, have_the_same_bits_on_any_number_of_threads) {
  const at::Tensor rows = at::randint(0, 3, {4000}, at::kLong).to(at::kInt);
  const at::Tensor values = numbers({4000, 8, 40});
  const int before = at::get_num_threads();
  const auto sum_of = [&](int threads) {
    at::set_num_threads(threads);
    const at::Tensor sum = at::zeros({3, 8, 40}, values.options());
    add_rows(sum, rows, values);
    return sum;
  };
  const at::Tensor one = sum_of(1);
  const at::Tensor four = sum_of(4);
  at::set_num_threads(before);
  EXPECT_TRUE(at::equal(one, four));
}

TEST_P(RowSumsTest, of_single_numbers_and_of_none) {
  const at::Tensor sum = at::zeros({3}, at::dtype(GetParam()));
  add_rows(sum, at::tensor(std::vector<std::int64_t>{2, 0, 2}), at::ones({3}, sum.options()));
  EXPECT_TRUE(at::equal(sum, at::tensor(std::vector<double>{1.0, 0.0, 2.0}, sum.options())));
  add_rows(sum, at::zeros({0}, at::kLong), at::zeros({0}, sum.options()));
  add_rows(at::zeros({0, 4}, sum.options()), at::zeros({0}, at::kLong), at::zeros({0, 4}, sum.options()));
  EXPECT_TRUE(at::equal(sum, at::tensor(std::vector<double>{1.0, 0.0, 2.0}, sum.options())));
}

TEST_P(RowSumsTest, refuse_rows_that_are_not_there_and_change_nothing) {
  const at::Tensor sum = at::zeros({3, 2}, at::dtype(GetParam()));
  for (const std::int64_t row : {3, -4})
    EXPECT_THROW(add_rows(sum, at::tensor(std::vector<std::int64_t>{0, row}), at::ones({2, 2}, sum.options())),
                 c10::IndexError);
  EXPECT_THROW(add_rows(sum, at::arange(2), at::ones({3, 2}, sum.options())), c10::Error);
  EXPECT_THROW(add_rows(sum, at::arange(2), at::ones({2, 2}, at::kHalf)), c10::Error);
  EXPECT_THROW(add_rows(sum, at::ones({2}), at::ones({2, 2}, sum.options())), c10::Error);
  EXPECT_THROW(add_rows(sum.t(), at::arange(2), at::ones({2, 3}, sum.options())), c10::Error);
  EXPECT_EQ(sum.abs().sum().item<double>(), 0.0);
}

INSTANTIATE_TEST_SUITE_P(Types, RowSumsTest, testing::Values(at::kFloat, at::kDouble));

}  // namespace
}  // namespace onebatch
