// A byte budget on LibTorch's CPU memory: the CPU plays a device of limited memory, and its peak is measured as a GPU's
// would be.
#pragma once

#include <c10/core/Allocator.h>

#include <cstdint>
#include <string>

namespace onebatch {

/// LibTorch's CPU allocator with a limit that throws c10::OutOfMemoryError, as a GPU's does. Installed once a process
/// and never removed, since tensors made through it may outlive everything. Counts the bytes asked for; thread-safe.
class MemoryBudget {
 public:
  /// Replaces LibTorch's CPU allocator on the first call, and lets malloc keep what is freed for the next step. Tensors
  /// made before keep their own deleter and are not counted.
  static MemoryBudget& install();

  virtual ~MemoryBudget() = default;
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  virtual void set_limit_bytes(std::int64_t limit) = 0;  // k_no_limit: none
  [[nodiscard]] virtual std::int64_t limit_bytes() const = 0;
  [[nodiscard]] virtual std::int64_t current_bytes() const = 0;
  [[nodiscard]] virtual std::int64_t peak_bytes() const = 0;
  /// Counts memory that was had elsewhere; with a negative number it is given back. Throws c10::OutOfMemoryError where
  /// the limit does not allow it.
  virtual void charge(std::int64_t bytes) = 0;
  /// Counts a block that was allocated where nothing is counted (UncountedMemory), from now until it is freed; of any
  /// other it changes nothing. Throws c10::OutOfMemoryError where the limit does not allow it.
  static void count(const c10::DataPtr& block);
  /// The peak becomes what is held now.
  virtual void reset_peak() = 0;
  /// Gives the host back what malloc kept of freed blocks.
  static void release_freed_pages();
  /// The words of the last out-of-memory error that any thread was given; empty: none was.
  static std::string last_refusal();
  /// How many such errors there were, of all threads.
  static std::int64_t num_refusals();

  static constexpr std::int64_t k_no_limit = INT64_MAX;

 protected:
  MemoryBudget() = default;
};

/// While it lives, what its thread allocates is the host's and counts for no device, until MemoryBudget::count(): for
/// samples that lie ready until a micro-batch is made of them.
class UncountedMemory {
 public:
  UncountedMemory();
  ~UncountedMemory();
  UncountedMemory(const UncountedMemory&) = delete;
  UncountedMemory& operator=(const UncountedMemory&) = delete;

 private:
  bool before_;
};

/// Lifts the budget while it lives: for work that belongs to the host, such as the reference of `verify`.
class UnlimitedMemory {
 public:
  explicit UnlimitedMemory(MemoryBudget& budget) : budget_(budget), limit_(budget.limit_bytes()) {
    budget_.set_limit_bytes(MemoryBudget::k_no_limit);
  }
  ~UnlimitedMemory() { budget_.set_limit_bytes(limit_); }
  UnlimitedMemory(const UnlimitedMemory&) = delete;
  UnlimitedMemory& operator=(const UnlimitedMemory&) = delete;

 private:
  MemoryBudget& budget_;
  std::int64_t limit_;
};

}  // namespace onebatch
