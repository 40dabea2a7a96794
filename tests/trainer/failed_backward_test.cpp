#include "trainer/device/failed_backward.hpp"

#include "trainer/device/memory_budget.hpp"

#include <ATen/ops/randn.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

namespace onebatch {
namespace {

at::Tensor chain(const at::Tensor& weight, int length) {
  at::Tensor x = weight;
  for (int i = 0; i < length; ++i) x = x.mul(weight).sin();
  return x;
}

// Two branches: when the backward of one runs out of memory, the other waits in the queue.
bool try_chain(const at::Tensor& weight, int length) {
  try {
    const at::Tensor first = chain(weight, length);
    const at::Tensor second = chain(weight, length);
    first.add(second).sum().backward();
  } catch (const c10::OutOfMemoryError&) {
    return false;
  }
  return true;
}

TEST(FailedBackwardTest, what_a_failed_backward_held_is_free_again) {
  MemoryBudget& budget = MemoryBudget::install();
  const at::Tensor weight = at::randn({10000}).set_requires_grad(true);
  ASSERT_TRUE(try_chain(weight, 1));
  const std::int64_t before = budget.current_bytes();
  bool failed_in_backward = false;
  for (int slack = 1; slack < 60 && !failed_in_backward; ++slack) {
    budget.set_limit_bytes(before + (4 * 20 + slack) * 40000);
    failed_in_backward = !try_chain(weight, 20) && budget.current_bytes() > before + 40000;
    release_failed_backward(c10::Device(c10::kCPU));
    EXPECT_LE(budget.current_bytes(), before + 40000) << "slack " << slack;
  }
  budget.set_limit_bytes(MemoryBudget::k_no_limit);
  EXPECT_TRUE(failed_in_backward) << "autograd kept nothing: then release_failed_backward is not needed any more";
}

}  // namespace
}  // namespace onebatch
