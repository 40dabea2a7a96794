#include "trainer/data/tar_file.hpp"

#include "trainer/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <sstream>
#include <string_view>
#include <utility>

namespace onebatch {
namespace {

constexpr std::uint64_t k_block_bytes = 512;
constexpr std::uint64_t k_longest_text = std::uint64_t{1} << 16;  // of a name, or of an extended header

std::uint64_t padded(std::uint64_t bytes) {
  return (bytes + k_block_bytes - 1) / k_block_bytes * k_block_bytes;
}

std::string_view until_zero(std::string_view field) {
  return field.substr(0, std::min(field.find('\0'), field.size()));
}

// Octal digits between spaces and zeros.
std::optional<std::uint64_t> octal(std::string_view field) {
  const std::size_t first = field.find_first_not_of(' ');
  if (first == std::string_view::npos) return std::nullopt;
  field = until_zero(field.substr(first));
  field = field.substr(0, std::min(field.find(' '), field.size()));
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value, 8);
  if (error != std::errc() || end != field.data() + field.size()) return std::nullopt;
  return value;
}

// GNU's numbers of more than 8 GB: the first bit is set, and the rest is big-endian.
std::optional<std::uint64_t> number(std::string_view field) {
  if ((static_cast<unsigned char>(field[0]) & 0x80U) == 0) return octal(field);
  std::uint64_t value = static_cast<unsigned char>(field[0]) & 0x7fU;
  for (const char byte : field.substr(1)) {
    if (value >> 55 != 0) return std::nullopt;
    value = value << 8 | static_cast<unsigned char>(byte);
  }
  return value;
}

std::uint64_t sum_of(std::string_view block) {
  constexpr std::size_t k_begin = 148;
  constexpr std::size_t k_end = 156;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < block.size(); ++i)
    sum += i >= k_begin && i < k_end ? static_cast<std::uint64_t>(' ') : static_cast<unsigned char>(block[i]);
  return sum;
}

bool is_regular(char type) {
  return type == '0' || type == '\0' || type == '7';
}

struct Name {
  std::string key;
  std::string ending;
};

std::optional<Name> split(const std::string& name) {
  const std::size_t slash = name.rfind('/');
  const std::size_t base = slash == std::string::npos ? 0 : slash + 1;
  const std::size_t dot = name.find('.', base);
  if (dot == std::string::npos || dot == base) return std::nullopt;
  return Name{name.substr(0, dot), name.substr(dot + 1)};
}

}  // namespace

struct TarReader::Header {
  std::string name;
  std::uint64_t bytes = 0;
  char type = '0';
  bool end = false;
};

void TarReader::fail(const std::string& what) const {
  throw UserError(fmt::format("{} is not a whole tar file: at byte {} {}", file_.path().string(), offset_, what));
}

TarReader::Header TarReader::read_header() const {
  std::array<char, k_block_bytes> block{};
  if (file_.bytes() < k_block_bytes || offset_ > file_.bytes() - k_block_bytes)
    fail("it ends without the empty block that is every tar file's last");
  file_.read(offset_, std::as_writable_bytes(std::span(block)));
  const std::string_view text(block.data(), block.size());
  if (text.find_first_not_of('\0') == std::string_view::npos) return {{}, 0, '0', true};
  if (octal(text.substr(148, 8)) != sum_of(text)) fail("a header's checksum is wrong");
  const auto bytes = number(text.substr(124, 12));
  if (!bytes) fail("a member's size is no number");
  Header header{std::string(until_zero(text.substr(0, 100))), *bytes, text[156], false};
  const bool ustar = text.substr(257, 6) == std::string_view("ustar\0", 6);
  const auto prefix = until_zero(text.substr(345, 155));
  if (ustar && !prefix.empty()) header.name = std::string(prefix) + "/" + header.name;
  return header;
}

// Passes over a header and its content, which must lie in the file.
void TarReader::pass(const Header& header) {
  const std::uint64_t left = file_.bytes() - offset_ - k_block_bytes;
  if (header.bytes > left) fail(fmt::format("a member of {} bytes begins, and {} follow", header.bytes, left));
  offset_ += k_block_bytes + std::min(padded(header.bytes), left);
}

std::string TarReader::read_text(const Header& header) const {
  const std::uint64_t left = file_.bytes() - offset_ - k_block_bytes;
  if (header.bytes > std::min(left, k_longest_text)) fail(fmt::format("a name is said to have {} bytes", header.bytes));
  std::string text(static_cast<std::size_t>(header.bytes), '\0');
  file_.read(offset_ + k_block_bytes, std::as_writable_bytes(std::span(text)));
  return text;
}

// Records "LENGTH KEY=VALUE\n", of which path and size count here.
void TarReader::read_extended(const Header& header) {
  const std::string all = read_text(header);
  for (std::string_view rest = all; !rest.empty();) {
    std::size_t length = 0;
    const auto [after, error] = std::from_chars(rest.data(), rest.data() + rest.size(), length);
    const auto digits = static_cast<std::size_t>(after - rest.data());
    if (error != std::errc() || length <= digits + 1 || length > rest.size() || rest[digits] != ' ')
      fail("an extended header cannot be read");
    const std::string_view record = rest.substr(digits + 1, length - digits - 2);
    if (record.starts_with("path=")) long_name_ = record.substr(5);
    if (record.starts_with("size=")) {
      std::uint64_t size = 0;
      const auto [end, wrong] = std::from_chars(record.data() + 5, record.data() + record.size(), size);
      if (wrong != std::errc() || end != record.data() + record.size()) fail("an extended header's size is no number");
      long_size_ = size;
    }
    rest.remove_prefix(length);
  }
}

// Files that were joined by cat have members behind the first one's end.
void TarReader::check_end() {
  std::array<char, 16 * k_block_bytes> some{};
  while (offset_ < file_.bytes()) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(some.size(), file_.bytes() - offset_));
    file_.read(offset_, std::as_writable_bytes(std::span(some).first(count)));
    const auto other = std::string_view(some.data(), count).find_first_not_of('\0');
    offset_ += other == std::string_view::npos ? count : other;
    if (other != std::string_view::npos)
      fail("something follows its end: where several were joined, name each by itself in data.files");
  }
}

std::optional<TarMember> TarReader::next() {
  for (;;) {
    Header header = read_header();
    if (header.end) {
      check_end();
      return std::nullopt;
    }
    if (header.type == 'L' || header.type == 'x') {
      if (header.type == 'L') long_name_ = until_zero(read_text(header));
      if (header.type == 'x') read_extended(header);
      pass(header);
      continue;
    }
    if (header.type == 'S') fail("a sparse member begins, which is not read: write it whole");
    if (!long_name_.empty() && header.type != 'g' && header.type != 'K') header.name = std::exchange(long_name_, {});
    if (long_size_ && header.type != 'g' && header.type != 'K') header.bytes = *std::exchange(long_size_, std::nullopt);
    const std::uint64_t begin = offset_ + k_block_bytes;
    pass(header);
    if (is_regular(header.type)) return TarMember{std::move(header.name), begin, header.bytes};
  }
}

namespace {

// Collects the members of one sample after the other.
class SampleIndex {
 public:
  SampleIndex(const std::string& file, const std::vector<std::string>& endings) : file_(file), endings_(endings) {
    for (std::size_t i = 0; i < endings.size(); ++i) {
      std::istringstream all(endings[i]);
      for (std::string one; std::getline(all, one, ';');) column_of_[one] = i;
    }
  }

  void add(const Name& name, const TarMember& member) {
    if (!begun_ || name.key != key_) begin(name.key);
    const auto found = column_of_.find(name.ending);
    if (found == column_of_.end()) return;
    auto& place = found_[found->second];
    if (place) throw UserError(fmt::format("{} holds {}.{} twice", file_, name.key, endings_[found->second]));
    place = TarPlace{member.begin, member.bytes};
  }

  std::vector<TarPlace> finish() {
    end();
    return std::move(places_);
  }

 private:
  void begin(const std::string& key) {
    end();
    key_ = key;
    begun_ = true;
    found_.assign(endings_.size(), std::nullopt);
  }

  void end() {
    if (!begun_) return;
    begun_ = false;
    for (std::size_t i = 0; i < endings_.size(); ++i) {
      if (!found_[i])
        throw UserError(fmt::format("{} holds no {}.{} beside the others of that name", file_, key_, endings_[i]));
      places_.push_back(*found_[i]);
    }
  }

  const std::string& file_;
  const std::vector<std::string>& endings_;
  std::map<std::string, std::size_t, std::less<>> column_of_;
  std::string key_;
  bool begun_ = false;
  std::vector<std::optional<TarPlace>> found_;
  std::vector<TarPlace> places_;
};

}  // namespace

std::vector<TarPlace> index_samples(const DataFile& file, const std::vector<std::string>& endings) {
  const std::string path = file.path().string();
  SampleIndex samples(path, endings);
  TarReader reader(file);
  while (const auto member = reader.next()) {
    if (const auto name = split(member->name)) samples.add(*name, *member);
  }
  return samples.finish();
}

}  // namespace onebatch
