#include "trainer/device/memory_budget.hpp"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>

// gperftools' malloc, where the program is linked with it: it tells glibc's functions of the same purpose nothing.
extern "C" __attribute__((weak)) void MallocExtension_ReleaseFreeMemory();

namespace onebatch {
namespace {

class BudgetAllocator;

// Stands in front of every block, since oneDNN frees through raw_deallocate and gives nothing but the data pointer.
// Aligned here, not by posix_memalign, which before glibc 2.38 does not find the blocks again that it has given
// (sourceware.org/bugzilla 14581).
struct alignas(64) BlockHeader {
  void* start;  // as malloc gave it
  std::int64_t bytes;
  BudgetAllocator* owner;
  bool is_counted;
};

thread_local bool counts_nothing = false;

class BudgetAllocator final : public c10::Allocator, public MemoryBudget {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, c10::Device(c10::kCPU)};
    const bool is_counted = !counts_nothing;
    if (is_counted) charge(static_cast<std::int64_t>(bytes));
    std::size_t room = bytes + sizeof(BlockHeader) + alignof(BlockHeader);
    void* const start = room > bytes ? std::malloc(room) : nullptr;
    void* aligned = start;
    if (start == nullptr || std::align(alignof(BlockHeader), sizeof(BlockHeader) + bytes, aligned, room) == nullptr) {
      if (is_counted) current_ -= static_cast<std::int64_t>(bytes);
      throw_out_of_memory(static_cast<std::int64_t>(bytes), "the host has no more memory");
    }
    auto* header = new (aligned) BlockHeader{start, static_cast<std::int64_t>(bytes), this, is_counted};
    void* data = header + 1;
    return {data, data, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* destination, const void* source, std::size_t bytes) const override {
    std::memcpy(destination, source, bytes);
  }

  void set_limit_bytes(std::int64_t limit) override { limit_ = limit; }
  std::int64_t limit_bytes() const override { return limit_; }
  std::int64_t current_bytes() const override { return current_; }
  std::int64_t peak_bytes() const override { return peak_; }
  void reset_peak() override { peak_ = current_.load(); }

  static void count(const c10::DataPtr& block) {
    if (block.get_deleter() != &release || block.get_context() == nullptr) return;
    auto* header = static_cast<BlockHeader*>(block.get_context()) - 1;
    if (header->is_counted) return;
    header->owner->charge(header->bytes);
    header->is_counted = true;
  }

  std::string refusal() {
    const std::lock_guard lock(refusal_mutex_);
    return last_refusal_;
  }

  std::int64_t num_refusals() {
    const std::lock_guard lock(refusal_mutex_);
    return num_refusals_;
  }

  void charge(std::int64_t bytes) override {
    const std::int64_t held = current_.fetch_add(bytes) + bytes;
    if (bytes > 0 && held > limit_) {  // what is given back is taken, however low the limit has become
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
    if (header->is_counted) header->owner->current_ -= header->bytes;
    std::free(header->start);
  }

  [[noreturn]] void throw_out_of_memory(std::int64_t bytes, const char* why) {
    const std::string words = fmt::format("out of memory: tried to allocate {} bytes, {} of {} are in use ({})", bytes,
                                          current_.load(), limit_.load(), why);
    {
      const std::lock_guard lock(refusal_mutex_);
      last_refusal_ = words;
      ++num_refusals_;
    }
    throw c10::OutOfMemoryError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, words);
  }

  std::atomic<std::int64_t> limit_{k_no_limit};
  std::atomic<std::int64_t> current_{0};
  std::atomic<std::int64_t> peak_{0};
  std::mutex refusal_mutex_;
  std::string last_refusal_;
  std::int64_t num_refusals_ = 0;
};

// A step frees and allocates the same large blocks again. By default glibc's malloc gives them back to the kernel,
// which clears every page anew.
void keep_freed_pages() {
#ifdef __GLIBC__
  constexpr int k_own_mapping_bytes = 1 << 30;
  mallopt(M_TRIM_THRESHOLD, -1);  // never
  mallopt(M_MMAP_THRESHOLD, k_own_mapping_bytes);
#endif
}

BudgetAllocator& installed() {
  static auto* const allocator = [] {
    keep_freed_pages();
    auto* made = new BudgetAllocator;  // lives as long as the process: tensors in static storage are freed after main
    c10::SetCPUAllocator(made, /*priority=*/10);
    return made;
  }();
  return *allocator;
}

}  // namespace

void MemoryBudget::release_freed_pages() {
  if (MallocExtension_ReleaseFreeMemory != nullptr) MallocExtension_ReleaseFreeMemory();
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

MemoryBudget& MemoryBudget::install() {
  return installed();
}

void MemoryBudget::count(const c10::DataPtr& block) {
  BudgetAllocator::count(block);
}

UncountedMemory::UncountedMemory() : before_(std::exchange(counts_nothing, true)) {}

UncountedMemory::~UncountedMemory() {
  counts_nothing = before_;
}

std::string MemoryBudget::last_refusal() {
  return installed().refusal();
}

std::int64_t MemoryBudget::num_refusals() {
  return installed().num_refusals();
}

}  // namespace onebatch
