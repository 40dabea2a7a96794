// The members of a tar file, by one pass over their headers: POSIX ustar and pax, GNU's long names and large sizes. No
// LibTorch here.
#pragma once

#include "trainer/io/data_file.hpp"

#include <optional>
#include <string>
#include <vector>

namespace onebatch {

/// A regular file in it.
struct TarMember {
  std::string name;
  std::uint64_t begin = 0;  // of its content
  std::uint64_t bytes = 0;
};

class TarReader {
 public:
  /// Keeps a reference.
  explicit TarReader(const DataFile& file) : file_(file) {}
  /// The next one; none at the end. What is no regular file is passed over. Throws UserError that names the file and
  /// the place where it is damaged, or ends before the empty block that every tar file has at its end, or goes on after
  /// it.
  std::optional<TarMember> next();

 private:
  struct Header;
  [[nodiscard]] Header read_header() const;
  [[nodiscard]] std::string read_text(const Header& header) const;
  void read_extended(const Header& header);
  void pass(const Header& header);
  void check_end();
  [[noreturn]] void fail(const std::string& what) const;

  const DataFile& file_;
  std::uint64_t offset_ = 0;
  std::string long_name_;  // of the next member, where its own header has no room
  std::optional<std::uint64_t> long_size_;
};

/// Where a member of a sample lies.
struct TarPlace {
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
};

/// WebDataset's layout: members that follow one another and are called alike up to the first dot after the folder are a
/// sample, and what stands after that dot says what each is. Names without a dot, or that begin with one, are passed
/// over. Returns for each sample the places of its `endings`, in their order; "jpg;png" is one of the two. Throws
/// UserError where a sample lacks one or has it twice.
std::vector<TarPlace> index_samples(const DataFile& file, const std::vector<std::string>& endings);

}  // namespace onebatch
