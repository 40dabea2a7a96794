// Products of whole numbers are exact in float32, whoever computes them in whatever order.
#include "trainer/device/matrix_products.hpp"

#include "trainer/device/precision.hpp"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>
#include <torch/csrc/inductor/aoti_torch/utils.h>

#include <cmath>
#include <thread>

namespace onebatch {
namespace {

constexpr std::int64_t k_rows = 130, k_inner = 257, k_columns = 101;  // above the least, and multiples of nothing

struct MatrixProductsTest : testing::Test {
  MatrixProductsTest() {
    use_quickest_matrix_products();
    at::manual_seed(7);
  }
};

at::Tensor whole_numbers(at::IntArrayRef sizes) {
  return at::randint(-9, 10, sizes, at::kLong);
}

at::Tensor in_float(const at::Tensor& whole) {
  return whole.to(at::kFloat);
}

TEST_F(MatrixProductsTest, both_operators_are_onednn_s_where_mkl_is_slow) {
  for (const char* name : {"aten::mm", "aten::addmm"}) {
    const std::string table = c10::Dispatcher::singleton().findSchemaOrThrow(name, "").dumpComputedTable();
    EXPECT_EQ(table.find("matrix_products.cpp") != std::string::npos, mkl_leaves_vectors_idle()) << table;
  }
}

TEST_F(MatrixProductsTest, arithmetic_is_as_the_last_configuration_has_it) {
  Configuration configuration;
  for (const Determinism asked : {Determinism::on, Determinism::off}) {
    configuration.run.deterministic = asked;
    set_up_arithmetic(configuration);
    EXPECT_EQ(at::globalContext().deterministicAlgorithms(), asked == Determinism::on);
  }
}

TEST_F(MatrixProductsTest, large_products_of_every_layout_are_exact) {
  for (const bool left_turned : {false, true}) {
    for (const bool right_turned : {false, true}) {
      const auto laid_out = [](const at::Tensor& x, bool turned) { return turned ? x.t().contiguous().t() : x; };
      const at::Tensor left = whole_numbers({k_rows, k_inner}), right = whole_numbers({k_inner, k_columns});
      const at::Tensor a = laid_out(in_float(left), left_turned), b = laid_out(in_float(right), right_turned);
      ASSERT_TRUE(is_large_product(a, b));
      const at::Tensor product = at::mm(a, b);
      EXPECT_TRUE(product.is_contiguous());
      EXPECT_TRUE(at::equal(product, in_float(at::mm(left, right))));
    }
  }
}

TEST_F(MatrixProductsTest, what_is_added_is_a_row_a_matrix_or_scaled) {
  const at::Tensor left = whole_numbers({k_rows, k_inner}), right = whole_numbers({k_inner, k_columns});
  const at::Tensor product = at::mm(left, right);
  for (const at::Tensor& added : {whole_numbers({k_columns}), whole_numbers({k_rows, k_columns}), whole_numbers({1})}) {
    EXPECT_TRUE(at::equal(at::addmm(in_float(added), in_float(left), in_float(right)), in_float(product + added)));
    EXPECT_TRUE(at::equal(at::addmm(in_float(added), in_float(left), in_float(right), 2, 3),
                          in_float(product * 3 + added * 2)));
  }
}

TEST_F(MatrixProductsTest, native_code_adds_products_where_their_sums_lie) {
  const auto add_product = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("onebatch::add_product", "")
                               .typed<void(const at::Tensor&, const at::Tensor&, const at::Tensor&)>();
  for (const std::int64_t rows : {k_rows, std::int64_t{2}}) {  // a large product, and a small one
    const at::Tensor left = whole_numbers({k_inner, rows}), right = whole_numbers({k_inner, k_columns});
    const at::Tensor before = whole_numbers({rows, k_columns});
    const at::Tensor expected = before + at::mm(left.t(), right);
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      const at::Tensor sum = before.to(type), turned = before.t().contiguous().to(type).t();
      for (const at::Tensor& summed : {sum, turned}) {
        const void* const place = summed.const_data_ptr();
        add_product.call(summed, left.to(type).t(), right.to(type));
        EXPECT_TRUE(at::equal(summed, expected.to(type)));
        EXPECT_EQ(summed.const_data_ptr(), place);
      }
    }
  }
}

// As the compiler's native code calls them, of a library that is loaded later.
struct Native {
  static AtenTensorHandle handle(at::Tensor& tensor) {
    return torch::aot_inductor::tensor_pointer_to_tensor_handle(&tensor);
  }
  static void mm(at::Tensor out, at::Tensor left, at::Tensor right) {
    ASSERT_EQ(aoti_torch_cpu_mm_out(handle(out), handle(left), handle(right)), AOTI_TORCH_SUCCESS);
  }
  static void addmm(at::Tensor out, at::Tensor added, at::Tensor left, at::Tensor right, double beta, double alpha) {
    ASSERT_EQ(aoti_torch_cpu_addmm_out(handle(out), handle(added), handle(left), handle(right), beta, alpha),
              AOTI_TORCH_SUCCESS);
  }
};

TEST_F(MatrixProductsTest, native_code_s_products_are_the_program_s) {
  void* const found = dlsym(RTLD_DEFAULT, "aoti_torch_cpu_mm_out");
  Dl_info place{};
  ASSERT_NE(dladdr(found, &place), 0);
  EXPECT_EQ(std::string(place.dli_fname).find("libtorch"), std::string::npos) << place.dli_fname;
}

TEST_F(MatrixProductsTest, native_code_s_products_are_exact) {
  for (const std::int64_t rows : {k_rows, std::int64_t{3}}) {
    const at::Tensor left = whole_numbers({rows, k_inner}), right = whole_numbers({k_inner, k_columns});
    const at::Tensor product = at::mm(left, right);
    for (const at::Tensor& out : {at::empty({rows, k_columns}), at::empty({k_columns, rows}).t()}) {
      Native::mm(out, in_float(left), in_float(right.t().contiguous()).t());
      EXPECT_TRUE(at::equal(out, in_float(product)));
      for (const at::Tensor& added : {whole_numbers({k_columns}), whole_numbers({k_columns}).expand({rows, k_columns}),
                                      whole_numbers({rows, k_columns}), whole_numbers({1})}) {
        const at::Tensor row =
            added.dim() == 2 && added.stride(0) == 0 ? in_float(added[0]).expand_as(product) : in_float(added);
        for (const double times : {1.0, 3.0}) {
          Native::addmm(out, row, in_float(left), in_float(right), times, times);
          EXPECT_TRUE(at::equal(out, in_float((product + added) * static_cast<std::int64_t>(times))));
        }
      }
    }
  }
}

TEST_F(MatrixProductsTest, native_code_s_mistakes_are_errors) {
  at::Tensor out = at::empty({1024, 1024}), left = at::ones({1024, 2048}), right = at::ones({2047, 1024});
  EXPECT_NE(aoti_torch_cpu_mm_out(Native::handle(out), Native::handle(left), Native::handle(right)),
            AOTI_TORCH_SUCCESS);
}

TEST_F(MatrixProductsTest, a_layer_s_gradients_are_exact) {
  const at::Tensor x = whole_numbers({k_rows, k_inner}), weight = whole_numbers({k_columns, k_inner}),
                   bias = whole_numbers({k_columns}), upstream = whole_numbers({k_rows, k_columns});
  const auto trained = [](const at::Tensor& whole) { return in_float(whole).set_requires_grad(true); };
  const at::Tensor inputs = trained(x), weights = trained(weight), biases = trained(bias);
  const auto gradients =
      torch::autograd::grad({at::linear(inputs, weights, biases)}, {inputs, weights, biases}, {in_float(upstream)});
  EXPECT_TRUE(at::equal(gradients[0], in_float(at::mm(upstream, weight))));
  EXPECT_TRUE(at::equal(gradients[1], in_float(at::mm(upstream.t(), x))));
  EXPECT_TRUE(at::equal(gradients[2], in_float(upstream.sum(0))));
}

TEST_F(MatrixProductsTest, small_ones_other_types_and_mistakes_are_mkl_s) {
  const auto of = [](std::int64_t rows, std::int64_t inner, std::int64_t columns, at::ScalarType type) {
    return is_large_product(at::ones({rows, inner}, type), at::ones({inner, columns}, type));
  };
  EXPECT_TRUE(of(1024, 32, 32, at::kFloat));
  EXPECT_FALSE(of(1023, 32, 32, at::kFloat));
  EXPECT_FALSE(of(1024, 32, 32, at::kDouble));
  EXPECT_FALSE(of(0, 2048, 2048, at::kFloat));
  EXPECT_FALSE(is_large_product(at::ones({1024, 2048}), at::ones({2047, 1024})));
  EXPECT_THROW(at::mm(at::ones({1024, 2048}), at::ones({2047, 1024})), c10::Error);
  EXPECT_TRUE(at::equal(at::mm(at::ones({3, 4}), at::ones({4, 2})), at::full({3, 2}, 4.0)));
}

void add_product(const at::Tensor& summed, const at::Tensor& left, const at::Tensor& right) {
  c10::Dispatcher::singleton()
      .findSchemaOrThrow("onebatch::add_product", "")
      .typed<void(const at::Tensor&, const at::Tensor&, const at::Tensor&)>()
      .call(summed, left, right);
}

TEST_F(MatrixProductsTest, the_first_product_takes_the_place_of_what_is_unwritten) {
  for (const std::int64_t rows : {k_rows, std::int64_t{2}}) {  // large and small ones
    const at::Tensor left = in_float(whole_numbers({rows, k_inner})), right = in_float(whole_numbers({k_inner, 101}));
    const at::Tensor sum = at::full({rows, 101}, NAN), other = at::zeros({rows, 101});
    {
      const UnwrittenSums unwritten({sum.const_data_ptr()});
      add_product(other, left, right);
      EXPECT_FALSE(unwritten.all_are_written());
      add_product(sum, left, right);
      EXPECT_TRUE(unwritten.all_are_written());
      EXPECT_TRUE(at::equal(sum, other));
      add_product(sum, left, right);
    }
    add_product(sum, left, right);
    EXPECT_TRUE(at::equal(sum, 3 * other));
  }
}

TEST_F(MatrixProductsTest, what_is_unwritten_is_so_for_its_own_scope) {
  const at::Tensor sum = at::ones({2});
  const UnwrittenSums outer({sum.const_data_ptr()});
  {
    const UnwrittenSums inner({});
    EXPECT_FALSE(UnwrittenSums::take(sum));
  }
  std::thread([&] { EXPECT_FALSE(UnwrittenSums::take(sum)); }).join();
  EXPECT_TRUE(UnwrittenSums::take(sum));
  EXPECT_FALSE(UnwrittenSums::take(sum));
}

}  // namespace
}  // namespace onebatch
