// The IDX format of MNIST (yann.lecun.com/exdb/mnist), plain or gzip: a magic number, big-endian sizes, unsigned bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace onebatch {

struct IdxArray {
  std::vector<std::int64_t> shape;  // [N] or [N, H, W]
  std::vector<std::uint8_t> values;
};

/// Reads an array of unsigned bytes with exactly `num_dimensions` dimensions. The file may be gzip whatever its name
/// says. Throws UserError naming the file: wrong magic, truncated, longer than its sizes say, sizes that no file of
/// this length can hold. Never allocates more than the file can expand to.
IdxArray read_idx(const std::filesystem::path& file, std::int64_t num_dimensions);

/// `folder`/`name` or `folder`/`name`.gz, whichever is there; none where neither is.
std::optional<std::filesystem::path> idx_in(const std::filesystem::path& folder, const std::string& name);

/// The same. Throws UserError where there is none, which says what was looked for, and that `key` of the configuration
/// is to name the folder.
std::filesystem::path find_idx(const std::filesystem::path& folder, const std::string& name,
                               const std::string& key = "data.path");

}  // namespace onebatch
