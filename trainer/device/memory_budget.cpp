#include "trainer/device/memory_budget.hpp"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

namespace onebatch {
namespace {

class BudgetAllocator;

// Stands in front of every block, since oneDNN frees through raw_deallocate and gives nothing but the data pointer.
struct alignas(64) BlockHeader {
  std::int64_t bytes;
  BudgetAllocator* owner;
};

class BudgetAllocator final : public c10::Allocator, public MemoryBudget {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, c10::Device(c10::kCPU)};
    charge(static_cast<std::int64_t>(bytes));
    void* block = nullptr;
    if (posix_memalign(&block, alignof(BlockHeader), sizeof(BlockHeader) + bytes) != 0) {
      current_ -= static_cast<std::int64_t>(bytes);
      throw_out_of_memory(static_cast<std::int64_t>(bytes), "the host has no more memory");
    }
    auto* header = new (block) BlockHeader{static_cast<std::int64_t>(bytes), this};
    void* data = header + 1;
    return {data, data, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* destination, const void* source, std::size_t bytes) const override { std::memcpy(destination, source, bytes); }

  void set_limit_bytes(std::int64_t limit) override { limit_ = limit; }
  std::int64_t limit_bytes() const override { return limit_; }
  std::int64_t current_bytes() const override { return current_; }
  std::int64_t peak_bytes() const override { return peak_; }
  void reset_peak() override { peak_ = current_.load(); }

  void charge(std::int64_t bytes) override {
    const std::int64_t held = current_.fetch_add(bytes) + bytes;
    if (held > limit_) {
      current_ -= bytes;
      throw_out_of_memory(bytes, "the device's limit is reached");
    }
    std::int64_t peak = peak_;
    while (peak < held && !peak_.compare_exchange_weak(peak, held)) {
    }
  }

 private:
  static void release(void* data) {
    if (data == nullptr) return;
    auto* header = static_cast<BlockHeader*>(data) - 1;
    header->owner->current_ -= header->bytes;
    std::free(header);
  }

  [[noreturn]] void throw_out_of_memory(std::int64_t bytes, const char* why) const {
    throw c10::OutOfMemoryError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                                "out of memory: tried to allocate " + std::to_string(bytes) + " bytes, " + std::to_string(current_) +
                                    " of " + std::to_string(limit_) + " are in use (" + why + ")");
  }

  std::atomic<std::int64_t> limit_{k_no_limit};
  std::atomic<std::int64_t> current_{0};
  std::atomic<std::int64_t> peak_{0};
};

}  // namespace

MemoryBudget& MemoryBudget::install() {
  static auto* const allocator = [] {
    auto* made = new BudgetAllocator;  // lives as long as the process: tensors in static storage are freed after main
    c10::SetCPUAllocator(made, /*priority=*/10);
    return made;
  }();
  return *allocator;
}

}  // namespace onebatch
