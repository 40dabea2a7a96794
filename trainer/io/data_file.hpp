// A large file of which parts are read where they are needed, at any time and from any thread. No LibTorch here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace onebatch {

/// Whether a file stays open between reads: not where there are very many of them.
enum class Between { open, closed };

/// Read by pread and not through a mapping: what the kernel has of the file is used as it is, nothing of it is counted
/// as this process's memory, and where another program shortens the file there is an error and not SIGBUS. What the
/// file was when it was opened (its size, time of change and inode) is compared at every read.
class DataFile {
 public:
  /// Throws UserError where it cannot be opened or is no file.
  explicit DataFile(std::filesystem::path path, Between between = Between::open);
  ~DataFile();
  DataFile(DataFile&& other) noexcept;
  DataFile& operator=(DataFile&& other) noexcept;
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::uint64_t bytes() const { return identity_.bytes; }
  /// All of `to`, from `offset` on. Throws UserError where the file has changed or cannot be read.
  void read(std::uint64_t offset, std::span<std::byte> to) const;

 private:
  struct Identity {
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
    std::uint64_t bytes = 0;
    std::int64_t changed_ns = 0;
    friend bool operator==(const Identity&, const Identity&) = default;
  };

  [[nodiscard]] int open_anew() const;
  [[nodiscard]] Identity identity_of(int descriptor) const;
  void read_from(int descriptor, std::uint64_t offset, std::span<std::byte> to) const;
  void check_unchanged(int descriptor) const;
  void close() noexcept;

  std::filesystem::path path_;
  Identity identity_;
  int descriptor_ = -1;  // -1: closed between reads
};

}  // namespace onebatch
