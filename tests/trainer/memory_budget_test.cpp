#include "trainer/device/memory_budget.hpp"

#include "trainer/device/compute_device.hpp"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

namespace onebatch {
namespace {

at::Tensor bytes(std::int64_t count) {
  return at::empty({count}, at::TensorOptions().dtype(at::kByte));
}

TEST(MemoryBudgetTest, counts_what_is_held_and_the_peak) {
  MemoryBudget& budget = MemoryBudget::install();
  const std::int64_t before = budget.current_bytes();
  {
    const at::Tensor a = bytes(1000);
    budget.reset_peak();
    { const at::Tensor b = bytes(5000); }
    EXPECT_EQ(budget.current_bytes(), before + 1000);
    EXPECT_EQ(budget.peak_bytes(), before + 6000);
  }
  EXPECT_EQ(budget.current_bytes(), before);
}

TEST(MemoryBudgetTest, beyond_the_limit_is_out_of_memory_and_nothing_is_lost) {
  MemoryBudget& budget = MemoryBudget::install();
  const std::int64_t before = budget.current_bytes();
  budget.set_limit_bytes(before + 1000);
  EXPECT_NO_THROW(bytes(1000));
  EXPECT_THROW(bytes(1001), c10::OutOfMemoryError);
  EXPECT_EQ(budget.current_bytes(), before);
  {
    const UnlimitedMemory unlimited(budget);
    EXPECT_NO_THROW(bytes(100000));
  }
  EXPECT_THROW(bytes(1001), c10::OutOfMemoryError);
  budget.set_limit_bytes(MemoryBudget::k_no_limit);
}

TEST(MemoryBudgetTest, what_is_given_back_is_taken_below_the_limit_too) {
  MemoryBudget& budget = MemoryBudget::install();
  const std::int64_t before = budget.current_bytes();
  budget.charge(2000);
  budget.set_limit_bytes(before + 500);
  EXPECT_NO_THROW(budget.charge(-1000));
  EXPECT_EQ(budget.current_bytes(), before + 1000);
  EXPECT_THROW(budget.charge(1), c10::OutOfMemoryError);
  budget.charge(-1000);
  budget.set_limit_bytes(MemoryBudget::k_no_limit);
}

TEST(MemoryBudgetTest, the_next_step_finds_the_pages_of_the_last) {
  constexpr std::int64_t k_bytes = 64 << 20;
  constexpr long k_smallest_page = 4096;
  MemoryBudget::install();
  const auto page_faults = [] {
    struct rusage usage {};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
  };
  const auto step = [] { bytes(k_bytes).fill_(1); };
  step();
  const long after_one = page_faults();
  for (int i = 0; i < 5; ++i) step();
  const long after_six = page_faults();
  EXPECT_LT(after_six - after_one, k_bytes / k_smallest_page / 4);
  MemoryBudget::release_freed_pages();
  step();
  EXPECT_GE((page_faults() - after_six) * sysconf(_SC_PAGESIZE), k_bytes / 2);  // they had gone
}

TEST(MemoryBudgetTest, only_memory_errors_mean_does_not_fit) {
  EXPECT_TRUE(is_out_of_memory(std::runtime_error("CUDA out of memory. Tried to allocate 2.00 GiB")));
  EXPECT_TRUE(is_out_of_memory(
      std::runtime_error("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")));
  EXPECT_TRUE(is_out_of_memory(std::bad_alloc()));
  EXPECT_FALSE(is_out_of_memory(std::runtime_error("mat1 and mat2 shapes cannot be multiplied")));
  EXPECT_FALSE(is_out_of_memory(std::runtime_error("CUDA error: an illegal memory access was encountered")));
}

}  // namespace
}  // namespace onebatch
