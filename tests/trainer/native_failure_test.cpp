#include "trainer/device/native_failure.hpp"

#include "trainer/device/matrix_products.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>

namespace onebatch {
namespace {

// As native code calls an operator: it goes on.
template <typename Work>
void ignored(const Work& work) {
  EXPECT_ANY_THROW(NativeFailure::told(work));
}

void fail(const char* words) {
  ignored([&] { throw std::runtime_error(words); });
}

std::string words_of(const NativeFailure& failure) {
  try {
    failure.rethrow();
  } catch (const std::exception& error) {
    return error.what();
  }
}

TEST(NativeFailureTest, the_first_is_kept) {
  const NativeFailure failure;
  EXPECT_EQ(NativeFailure::told([] { return 3; }), 3);
  EXPECT_FALSE(failure.was_met());
  fail("first");
  fail("second");
  EXPECT_TRUE(failure.was_met());
  EXPECT_EQ(words_of(failure), "first");
}

TEST(NativeFailureTest, without_a_listener_it_is_thrown_alone) {
  fail("unheard");
  const NativeFailure later;
  EXPECT_FALSE(later.was_met());
}

TEST(NativeFailureTest, the_innermost_of_the_thread_hears) {
  const NativeFailure outer;
  {
    const NativeFailure inner;
    fail("inner");
    EXPECT_TRUE(inner.was_met());
  }
  std::thread([] { fail("elsewhere"); }).join();
  EXPECT_FALSE(outer.was_met());
}

TEST(NativeFailureTest, operators_that_return_nothing_tell) {
  use_quickest_matrix_products();  // which links them
  for (const char* name : {"onebatch::add_product", "onebatch::add_rows"}) {
    const NativeFailure failure;
    const auto call = [&] {
      c10::Dispatcher::singleton()
          .findSchemaOrThrow(name, "")
          .typed<void(const at::Tensor&, const at::Tensor&, const at::Tensor&)>()
          .call(at::zeros({3, 4}), at::ones({2, 7}), at::ones({5, 4}));
    };
    EXPECT_ANY_THROW(call());
    EXPECT_TRUE(failure.was_met()) << name;
  }
}

}  // namespace
}  // namespace onebatch
