// Zeroed memory that begins on a cache line.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace onebatch::comm {

class AlignedMemory {
 public:
  static constexpr std::size_t k_alignment = 64;

  AlignedMemory() = default;
  explicit AlignedMemory(std::size_t bytes) : bytes_(bytes + k_alignment) {
    void* begin = bytes_.data();
    std::size_t room = bytes_.size();
    data_ = static_cast<std::byte*>(std::align(k_alignment, bytes, begin, room));
  }

  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  std::vector<std::byte> bytes_;
  std::byte* data_ = nullptr;
};

}  // namespace onebatch::comm
