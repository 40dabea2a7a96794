#include "trainer/data/token_files.hpp"

#include "trainer/base/error.hpp"
#include "trainer/data/file_list.hpp"
#include "trainer/io/contents.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <stdexcept>

namespace onebatch {
namespace {

static_assert(std::endian::native == std::endian::little, "tokens are copied as they lie in the file");

constexpr std::uint64_t k_header_bytes = 256 * sizeof(std::int32_t);

struct Header {
  std::int32_t magic;
  std::int32_t version;
  TokenType type;
};
// llm.c, dev/data/data_common.py: "gpt-2" and "llama-3".
constexpr std::array<Header, 2> k_headers = {{{20240520, 1, TokenType::uint16}, {20240801, 7, TokenType::uint32}}};

std::uint64_t bytes_of(TokenType type) {
  if (type == TokenType::uint8) return 1;
  return type == TokenType::uint32 ? 4 : 2;
}

const char* name_of(TokenType type) {
  if (type == TokenType::uint8) return "uint8";
  return type == TokenType::uint32 ? "uint32" : "uint16";
}

std::optional<std::array<std::int32_t, 3>> first_numbers(const DataFile& file) {
  std::array<std::int32_t, 3> numbers{};
  if (file.bytes() < k_header_bytes) return std::nullopt;
  file.read(0, std::as_writable_bytes(std::span(numbers)));
  return numbers;
}

TokenLayout layout_after(const Header& header, const std::array<std::int32_t, 3>& numbers, const DataFile& file,
                         TokenType asked) {
  const std::string name = file.path().string();
  if (numbers[1] != header.version)
    throw UserError(fmt::format("{}: its header has the version {}, and {} is the one that is read", name, numbers[1],
                                header.version));
  if (asked != TokenType::automatic && asked != header.type)
    throw UserError(fmt::format("{}: its header says {}: leave data.token_type out, or write \"{}\"", name,
                                name_of(header.type), name_of(header.type)));
  const std::uint64_t bytes = bytes_of(header.type);
  const std::uint64_t data = file.bytes() - k_header_bytes;
  if (numbers[2] < 0 || static_cast<std::uint64_t>(numbers[2]) * bytes != data)
    throw UserError(fmt::format("{} is not whole: its header says {} tokens of {} bytes, and {} bytes follow it", name,
                                numbers[2], bytes, data));
  return {k_header_bytes, bytes, numbers[2]};
}

// Numbers of 32 or 64 bits, read as twice or four times as many of 16: every second is 0, or of a large vocabulary
// small. Padding and small vocabularies look otherwise.
void refuse_wider(const DataFile& file) {
  constexpr std::uint64_t k_looked_at = 4096;
  constexpr std::uint64_t k_least = 32;
  std::vector<std::uint16_t> words(static_cast<std::size_t>(std::min(k_looked_at, file.bytes() / 2)));
  if (words.size() < k_least) return;
  file.read(0, std::as_writable_bytes(std::span(words)));
  std::uint16_t most = 0;
  std::size_t some = 0;
  std::size_t large = 0;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i % 2 == 1) most = std::max(most, words[i]);
    if (i % 2 == 0 && words[i] != 0) ++some;
    if (i % 2 == 0 && words[i] > 255) ++large;
  }
  const std::size_t enough = words.size() / 10;
  if ((most == 0 && some >= enough) || (most < 16 && large >= enough))
    throw UserError(fmt::format(
        "{} has no header that says how large its tokens are, and of its first {} numbers of 16 bits every "
        "second is below {}, as in a file of larger ones: write data.token_type = \"uint32\", or \"uint16\" where "
        "it is meant; tokens of 64 bits have to be written anew with fewer",
        file.path().string(), words.size(), most + 1));
}

TokenLayout layout_without(const DataFile& file, TokenType asked) {
  const std::uint64_t bytes = bytes_of(asked);
  if (file.bytes() % bytes != 0)
    throw UserError(
        fmt::format("{} has {} bytes, which are no whole number of tokens of {}: write data.token_type as "
                    "the file was written",
                    file.path().string(), file.bytes(), bytes));
  if (asked == TokenType::automatic) refuse_wider(file);
  return {0, bytes, static_cast<std::int64_t>(file.bytes() / bytes)};
}

template <typename T>
void widen(const std::byte* from, std::span<std::int64_t> to) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    T value = 0;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    to[i] = value;
  }
}

void widen(std::span<const std::byte> from, std::uint64_t token_bytes, std::span<std::int64_t> to) {
  if (token_bytes == 1) return widen<std::uint8_t>(from.data(), to);
  if (token_bytes == 2) return widen<std::uint16_t>(from.data(), to);
  widen<std::uint32_t>(from.data(), to);
}

struct Extremes {
  std::int64_t least = 0;
  std::int64_t largest = 0;
};

// The compiler makes vector instructions of these loops: a file is looked through about as fast as it is read.
template <typename T>
Extremes extremes(const std::byte* from, std::size_t count) {
  T least = std::numeric_limits<T>::max();
  T largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    T value = 0;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    least = std::min(least, value);
    largest = std::max(largest, value);
  }
  return {least, largest};
}

Extremes extremes(std::span<const std::byte> from, std::uint64_t token_bytes) {
  if (token_bytes == 1) return extremes<std::uint8_t>(from.data(), from.size());
  if (token_bytes == 2) return extremes<std::uint16_t>(from.data(), from.size() / 2);
  return extremes<std::uint32_t>(from.data(), from.size() / 4);
}

std::size_t place_of_token(std::span<const std::byte> from, std::uint64_t token_bytes, std::int64_t token) {
  std::vector<std::int64_t> values(from.size() / token_bytes);
  widen(from, token_bytes, values);
  return static_cast<std::size_t>(std::find(values.begin(), values.end(), token) - values.begin());
}

}  // namespace

TokenLayout read_token_layout(const DataFile& file, TokenType type) {
  if (const auto numbers = first_numbers(file)) {
    for (const Header& header : k_headers) {
      if ((*numbers)[0] == header.magic) return layout_after(header, *numbers, file, type);
    }
  }
  return layout_without(file, type);
}

TokenFiles::TokenFiles(const std::vector<std::filesystem::path>& files, TokenType type, std::int64_t block_size)
    : block_size_(block_size) {
  std::int64_t most = 0;
  for (const auto& path : files) {
    DataFile file(path, between_reads(files.size()));
    const TokenLayout layout = read_token_layout(file, type);
    most = std::max(most, layout.tokens);
    all_tokens_ += layout.tokens;
    if (type == TokenType::automatic && layout.begin_bytes == 0) taken_for_16_bits_ = path;
    const std::int64_t blocks = layout.tokens > 0 ? (layout.tokens - 1) / block_size : 0;
    if (blocks > 0) parts_.push_back({std::move(file), layout, blocks_});
    if (blocks == 0) ++files_without_block_;
    blocks_ += blocks;
  }
  if (blocks_ == 0)
    throw UserError(fmt::format("{}{} holds {} tokens: a block of data.block_size = {} needs one more than that",
                                files.front().string(), files.size() > 1 ? " or another of the files" : "", most,
                                block_size));
}

std::string TokenFiles::about_unused() const {
  constexpr double k_said_from = 0.05;
  const auto with_block = static_cast<std::int64_t>(parts_.size());
  const std::int64_t unused = all_tokens_ - blocks_ * block_size_ - with_block;
  const double share = static_cast<double>(unused) / static_cast<double>(all_tokens_);
  if (with_block + files_without_block_ == 1 || share < k_said_from) return {};
  return fmt::format(
      "{} of the {} tokens ({:.1f} %) are in no sample, since each file is cut into blocks of data.block_size = {} by "
      "itself; {} of the {} files hold none: write a smaller block_size, or join the files, with a separator between "
      "documents",
      unused, all_tokens_, 100.0 * share, block_size_, files_without_block_, files_without_block_ + with_block);
}

std::string TokenFiles::digest() const {
  ChecksumStream stream;
  std::vector<FileRegion> regions;
  for (const auto& [file, layout, first_block] : parts_) {
    const std::int64_t blocks = (layout.tokens - 1) / block_size_;
    regions.push_back(
        {&file, layout.begin_bytes, layout.token_bytes * static_cast<std::uint64_t>(blocks * block_size_ + 1)});
    stream.update(std::as_bytes(std::span(&first_block, 1)));
  }
  add_contents(stream, regions);
  return to_text(stream.value());
}

const TokenFiles::Part& TokenFiles::part_of(std::int64_t block) const {
  if (block < 0 || block >= blocks_)
    throw std::out_of_range(fmt::format("sample {} of a data set of {}", block, blocks_));
  const auto after = std::upper_bound(parts_.begin(), parts_.end(), block,
                                      [](std::int64_t sought, const Part& part) { return sought < part.first_block; });
  return *std::prev(after);
}

void TokenFiles::read(std::int64_t block, std::span<std::int64_t> to) const {
  const Part& part = part_of(block);
  std::vector<std::byte> bytes(to.size() * part.layout.token_bytes);
  const auto first = static_cast<std::uint64_t>((block - part.first_block) * block_size_);
  part.file.read(part.layout.begin_bytes + first * part.layout.token_bytes, bytes);
  widen(bytes, part.layout.token_bytes, to);
}

std::string TokenFiles::place_of(std::int64_t block, std::int64_t token) const {
  const Part& part = part_of(block);
  return fmt::format("{}, token {}", part.file.path().string(), (block - part.first_block) * block_size_ + token);
}

TokenFiles::Range TokenFiles::look_through() const {
  std::optional<Range> range;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const std::int64_t end = i + 1 < parts_.size() ? parts_[i + 1].first_block : blocks_;
    look_through(parts_[i], end - parts_[i].first_block, range);
  }
  return range.value();
}

void TokenFiles::look_through(const Part& part, std::int64_t blocks, std::optional<Range>& range) const {
  constexpr std::int64_t k_some_tokens = std::int64_t{1} << 20;
  const std::int64_t tokens = blocks * block_size_ + 1;
  const std::uint64_t token_bytes = part.layout.token_bytes;
  std::vector<std::byte> bytes;
  for (std::int64_t first = 0; first < tokens; first += k_some_tokens) {
    bytes.resize(static_cast<std::size_t>(std::min(k_some_tokens, tokens - first)) * token_bytes);
    part.file.read(part.layout.begin_bytes + static_cast<std::uint64_t>(first) * token_bytes, bytes);
    const Extremes found = extremes(bytes, token_bytes);
    const auto at = [&](std::int64_t token) {
      const std::int64_t place = first + static_cast<std::int64_t>(place_of_token(bytes, token_bytes, token));
      return Found{token, part.first_block + std::max<std::int64_t>(0, place - 1) / block_size_};
    };
    if (!range || found.least < range->least.token) {
      const Found least = at(found.least);
      range = Range{least, range ? range->largest : least};
    }
    if (found.largest > range->largest.token) range->largest = at(found.largest);
  }
}

}  // namespace onebatch
