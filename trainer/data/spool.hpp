// What a command gave, as a file on the local disk for as long as anybody reads it. No LibTorch here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace onebatch {

/// Processes of one user on one node that name the same command have one file together: the first runs the command, the
/// others wait for it. The last that closes removes the file; what a killed process left is made anew by the next.
class Spool {
 public:
  /// `name`: "pipe:…". Blocks until all that the command gives is there, `most_bytes` at most. Throws UserError that
  /// names the command, std::system_error.
  Spool(std::string name, std::uint64_t most_bytes);
  ~Spool();
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

  /// Where the file of a command lies: a folder of the user's own in TMPDIR.
  static std::filesystem::path place_of(const std::string& name);

 private:
  bool share();
  void fill(std::uint64_t most_bytes);

  std::string name_;
  std::filesystem::path path_;
  std::uint64_t bytes_ = 0;
  int descriptor_ = -1;  // holds a shared lock for as long as the file is read
};

}  // namespace onebatch
