// How much memory something takes, and that it cannot take more.
#pragma once

#include <cstdint>

namespace onebatch::fuzz {

/// While it lives, this process gets no more memory than it has and `most_bytes`. With the address sanitizer
/// allocations are counted, of libraries too, and nothing is refused; without it the address space is limited, and
/// nothing counted.
class MemoryBound {
 public:
  explicit MemoryBound(std::int64_t most_bytes);
  ~MemoryBound();
  MemoryBound(const MemoryBound&) = delete;
  MemoryBound& operator=(const MemoryBound&) = delete;

  /// Whether allocations are counted.
  static bool counts();
  /// The most that was there at one time, less what was there at the beginning; 0 where nothing is counted.
  [[nodiscard]] std::int64_t peak_bytes() const;

 private:
  std::int64_t begin_bytes_ = 0;
};

}  // namespace onebatch::fuzz
