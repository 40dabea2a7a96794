// XXH3 of what is written to a file, and of what the file has then.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace onebatch {

/// XXH3's 128 bits.
struct Checksum {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  bool operator==(const Checksum&) const = default;
};

/// 32 hexadecimal digits.
std::string to_text(const Checksum& checksum);

/// Of bytes that come part by part.
class ChecksumStream {
 public:
  ChecksumStream();
  ~ChecksumStream();
  ChecksumStream(const ChecksumStream&) = delete;
  ChecksumStream& operator=(const ChecksumStream&) = delete;

  void update(std::span<const std::byte> bytes);
  [[nodiscard]] Checksum value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Of bytes that are all there.
Checksum checksum_of_bytes(std::span<const std::byte> bytes);

/// Where a file is read from: the disk itself is asked for what was synced before, as far as the kernel lets go of its
/// own copy.
enum class ReadFrom { cache, disk };

/// Throws std::system_error naming a file that cannot be read.
Checksum checksum_of(const std::filesystem::path& file, ReadFrom where = ReadFrom::cache);

}  // namespace onebatch
