// Out of memory where TorchScript's interpreter stands between the operator and us.
#include "trainer/device/compute_device.hpp"
#include "trainer/device/memory_budget.hpp"

#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <optional>

namespace onebatch {
namespace {

// Its interpreter throws a runtime_error of its own in place of the operator's error.
TEST(ScriptMemoryTest, out_of_memory_inside_of_the_interpreter_is_out_of_memory) {
  MemoryBudget& budget = MemoryBudget::install();
  torch::jit::Module module("module");
  module.define("def forward(self, x):\n  return x.repeat([1000, 1000])\n");
  const at::Tensor input = at::ones({1, 1000});
  budget.set_limit_bytes(budget.current_bytes() + 100'000);
  std::optional<bool> recognised;
  try {
    module.forward({input});
  } catch (const c10::OutOfMemoryError&) {
    FAIL() << "the interpreter keeps the type: nothing to recognise";
  } catch (const std::exception& error) {
    recognised = is_out_of_memory(error);
  }
  budget.set_limit_bytes(MemoryBudget::k_no_limit);
  EXPECT_EQ(recognised, true);
  EXPECT_FALSE(is_out_of_memory(std::runtime_error("out of memory: tried to allocate 12 bytes, 3 of 4 are in use")))
      << "words alone, of an error that nobody was given";
}

}  // namespace
}  // namespace onebatch
