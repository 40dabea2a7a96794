#include "trainer/io/checksum.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <vector>

namespace onebatch {
namespace {

constexpr std::size_t k_block_bytes = std::size_t{1} << 20;

// A descriptor that is closed at the end of the scope.
class Opened {
 public:
  explicit Opened(const std::filesystem::path& file)
      : file_(file), descriptor_(::open(file.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (descriptor_ < 0) fail();
  }
  ~Opened() { ::close(descriptor_); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  // Best effort: a file system in memory has no other copy.
  void drop_cached() const { static_cast<void>(::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED)); }

  // 0 bytes: the end.
  std::size_t read(std::span<std::byte> block) const {
    for (;;) {
      const ssize_t count = ::read(descriptor_, block.data(), block.size());
      if (count >= 0) return static_cast<std::size_t>(count);
      if (errno != EINTR) fail();
    }
  }

 private:
  [[noreturn]] void fail() const {
    throw std::system_error(errno, std::generic_category(), "cannot read " + file_.string());
  }

  std::filesystem::path file_;
  int descriptor_;
};

}  // namespace

struct ChecksumStream::State {
  XXH3_state_t xxh3;
};

ChecksumStream::ChecksumStream() : state_(std::make_unique<State>()) {
  XXH3_128bits_reset(&state_->xxh3);
}

ChecksumStream::~ChecksumStream() = default;

void ChecksumStream::update(std::span<const std::byte> bytes) {
  XXH3_128bits_update(&state_->xxh3, bytes.data(), bytes.size());
}

Checksum ChecksumStream::value() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->xxh3);
  return {hash.high64, hash.low64};
}

std::string to_text(const Checksum& checksum) {
  return fmt::format("{:016x}{:016x}", checksum.high, checksum.low);
}

Checksum checksum_of_bytes(std::span<const std::byte> bytes) {
  ChecksumStream stream;
  stream.update(bytes);
  return stream.value();
}

Checksum checksum_of(const std::filesystem::path& file, ReadFrom where) {
  const Opened opened(file);
  if (where == ReadFrom::disk) opened.drop_cached();
  ChecksumStream checksum;
  std::vector<std::byte> block(k_block_bytes);
  for (std::size_t count = 0; (count = opened.read(block)) > 0;) checksum.update(std::span(block).first(count));
  return checksum.value();
}

}  // namespace onebatch
