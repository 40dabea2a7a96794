// Files of token numbers, one after another: nanoGPT's plain ones, and llm.c's with a header. No LibTorch here.
#pragma once

#include "trainer/base/configuration.hpp"
#include "trainer/io/data_file.hpp"

#include <optional>
#include <vector>

namespace onebatch {

/// Where a file's tokens lie.
struct TokenLayout {
  std::uint64_t begin_bytes = 0;
  std::uint64_t token_bytes = 2;  // 1, 2 or 4, little-endian
  std::int64_t tokens = 0;
};

/// llm.c's header is known by its magic number and says what tokens it has: 256 numbers of 32 bits, [20240520, 1,
/// tokens] before tokens of 16 bits or [20240801, 7, tokens] before those of 32. Without one all of the file is tokens,
/// of `type` (automatic: 16 bits). Throws UserError that names the file, what is wrong with it and what was expected.
TokenLayout read_token_layout(const DataFile& file, TokenType type);

/// Block i of a file is its tokens i·block_size … (i + 1)·block_size, the last of which is the next block's first:
/// inputs and the tokens that follow them. A file of n tokens has ⌊(n − 1) / block_size⌋ blocks; blocks are counted
/// through the files in their order, and none lies in two of them.
class TokenFiles {
 public:
  /// Throws UserError where there is not one block.
  TokenFiles(const std::vector<std::filesystem::path>& files, TokenType type, std::int64_t block_size);

  [[nodiscard]] std::int64_t blocks() const { return blocks_; }
  [[nodiscard]] std::int64_t block_size() const { return block_size_; }
  /// One whose tokens nothing has said to be of 16 bits; empty: there is none.
  [[nodiscard]] std::filesystem::path taken_for_16_bits() const { return taken_for_16_bits_; }
  /// Of several files that lose many tokens at their ends; else empty.
  [[nodiscard]] std::string about_unused() const;
  /// Of all blocks, see add_contents.
  [[nodiscard]] std::string digest() const;
  /// Of a block: block_size + 1 of them.
  void read(std::int64_t block, std::span<std::int64_t> to) const;
  /// "tokens.bin, token 1024".
  [[nodiscard]] std::string place_of(std::int64_t block, std::int64_t token) const;

  struct Found {
    std::int64_t token = 0;
    std::int64_t block = 0;  // where it is to be predicted
  };
  struct Range {
    Found least;
    Found largest;
  };
  /// Of all tokens of all blocks, looked through once.
  [[nodiscard]] Range look_through() const;

 private:
  struct Part {
    DataFile file;
    TokenLayout layout;
    std::int64_t first_block = 0;
  };

  [[nodiscard]] const Part& part_of(std::int64_t block) const;
  void look_through(const Part& part, std::int64_t blocks, std::optional<Range>& range) const;

  std::int64_t block_size_;
  std::int64_t blocks_ = 0;
  std::int64_t all_tokens_ = 0;
  std::int64_t files_without_block_ = 0;
  std::vector<Part> parts_;
  std::filesystem::path taken_for_16_bits_;
};

}  // namespace onebatch
