// A file that is either written to the last byte and synced, or not there; and what such a file says.
#pragma once

#include <filesystem>
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
  /// Syncs and closes.
  void commit();

 private:
  [[noreturn]] void fail(const char* what) const;

  std::filesystem::path file_;
  int descriptor_;
};

/// Makes a folder's entries (a rename, a new file) survive a power cut. Throws std::system_error.
void sync_folder(const std::filesystem::path& folder);
/// `text` under `file`, synced. Throws std::system_error.
void write_text(const std::filesystem::path& file, std::string_view text);
/// `text` under `file`, whole or not at all: written beside it, synced, renamed. Throws std::system_error.
void write_text_atomically(const std::filesystem::path& file, std::string_view text);
/// All of a file. Throws UserError naming one that cannot be read.
std::string read_text(const std::filesystem::path& file);

}  // namespace onebatch
