// A file that is either written to the last byte and synced, or not there; and what such a file says.
#pragma once

#include "trainer/io/checksum.hpp"

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace onebatch {

class DurableFile {
 public:
  /// Creates or empties the file. Throws std::system_error naming it.
  explicit DurableFile(const std::filesystem::path& file);
  /// Removes what was not committed.
  ~DurableFile();
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  /// Throws std::system_error naming the file (a full disk).
  void write(std::span<const std::byte> bytes);
  /// Syncs and closes. Returns the checksum of what was written.
  Checksum commit();

 private:
  void write_block(std::span<const std::byte> bytes);
  void push_to_disk();
  [[noreturn]] void fail(const char* what) const;

  std::filesystem::path file_;
  ChecksumStream checksum_;
  std::int64_t written_bytes_ = 0;
  std::int64_t pushed_bytes_ = 0;  // those before are on their way to the disk
  int descriptor_;
};

/// Makes a folder's entries (a rename, a new file) survive a power cut. Throws std::system_error.
void sync_folder(const std::filesystem::path& folder);
/// All of a file under another name, synced. Throws std::system_error.
void copy_durably(const std::filesystem::path& from, const std::filesystem::path& to);
/// `text` under `file`, synced. Returns its checksum. Throws std::system_error.
Checksum write_text(const std::filesystem::path& file, std::string_view text);
/// What `write` writes and syncs, whole or not at all: beside `file`, then renamed. Whatever it throws is passed on,
/// and nothing has changed then. Returns its checksum.
Checksum write_atomically(const std::filesystem::path& file,
                          const std::function<Checksum(const std::filesystem::path& partial)>& write);
/// `text` under `file`, whole or not at all: written beside it, synced, renamed. Returns its checksum. Throws
/// std::system_error.
Checksum write_text_atomically(const std::filesystem::path& file, std::string_view text);
/// All of a file. Throws UserError naming one that cannot be read.
std::string read_text(const std::filesystem::path& file);

}  // namespace onebatch
