#include "trainer/io/zip_records.hpp"

#include "trainer/io/durable_file.hpp"
#include "trainer/io/zip_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>
#include <vector>

namespace onebatch {
namespace {

namespace fs = std::filesystem;

// Names of fields as in PKWARE's APPNOTE.TXT, section 4.3.
constexpr std::uint32_t k_own_header = 0x04034b50;
constexpr std::uint32_t k_descriptor = 0x08074b50;
constexpr std::uint32_t k_entry = 0x02014b50;
constexpr std::uint32_t k_end = 0x06054b50;
constexpr std::uint32_t k_end_64 = 0x06064b50;
constexpr std::uint32_t k_locator_64 = 0x07064b50;
constexpr std::uint32_t k_in_the_extra_field = 0xffffffff;

class Source {
 public:
  explicit Source(const fs::path& file) : in_(file, std::ios::binary), file_(file), bytes_(fs::file_size(file)) {}

  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] std::string read(std::uint64_t at, std::uint64_t count) {
    if (at > bytes_ || count > bytes_ - at)
      throw std::runtime_error(file_.string() + ": its directory points beyond it");
    std::string text(static_cast<std::size_t>(count), '\0');
    in_.seekg(static_cast<std::streamoff>(at));
    if (!in_.read(text.data(), static_cast<std::streamsize>(count)))
      throw std::runtime_error("cannot read " + file_.string());
    return text;
  }

 private:
  std::ifstream in_;
  fs::path file_;
  std::uint64_t bytes_;
};

std::uint64_t number_in(const std::string& text, std::size_t at, std::size_t bytes) {
  if (at + bytes > text.size()) throw std::runtime_error("a header of the zip file is too short");
  std::uint64_t number = 0;
  for (std::size_t i = bytes; i-- > 0;) number = (number << 8) | static_cast<unsigned char>(text[at + i]);
  return number;
}

std::uint64_t two(const std::string& text, std::size_t at) {
  return number_in(text, at, 2);
}
std::uint64_t four(const std::string& text, std::size_t at) {
  return number_in(text, at, 4);
}
std::uint64_t eight(const std::string& text, std::size_t at) {
  return number_in(text, at, 8);
}

struct Directory {
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
  std::uint64_t entries = 0;
};

Directory directory_of(Source& source) {
  constexpr std::uint64_t k_end_bytes = 22;
  constexpr std::uint64_t k_locator_bytes = 20;
  constexpr std::uint64_t k_longest_comment = 65535;
  const std::uint64_t searched = std::min(source.bytes(), k_end_bytes + k_longest_comment);
  const std::string tail = source.read(source.bytes() - searched, searched);
  const auto is_end = [&](std::size_t at) {
    return at + k_end_bytes <= tail.size() && four(tail, at) == k_end &&
           at + k_end_bytes + two(tail, at + 20) == tail.size();  // a comment may have the mark in it
  };
  std::size_t at = tail.size();
  do {
    if (at == 0) throw std::runtime_error("the zip file has no end of its directory");
    --at;
  } while (!is_end(at));
  const std::uint64_t end = source.bytes() - searched + at;
  if (end >= k_locator_bytes) {
    const std::string locator = source.read(end - k_locator_bytes, k_locator_bytes);
    if (four(locator, 0) == k_locator_64) {
      const std::string wide = source.read(eight(locator, 8), 56);
      if (four(wide, 0) == k_end_64) return {eight(wide, 48), eight(wide, 40), eight(wide, 32)};
    }
  }
  return {four(tail, at + 16), four(tail, at + 12), two(tail, at + 10)};
}

struct Entry {
  std::string name;
  bool has_descriptor = false;
  bool is_packed = false;
  std::uint64_t bytes = 0;
  std::uint64_t own_header = 0;
  std::uint64_t checksum_at = 0;  // in the directory
};

// Sizes and places that do not fit their fields stand in this one, in that order.
void widen(const std::string& extra, std::uint64_t packed_bytes, Entry& entry) {
  for (std::size_t at = 0; at + 4 <= extra.size(); at += 4 + two(extra, at + 2)) {
    if (two(extra, at) != 1) continue;
    std::size_t field = at + 4;
    const auto take = [&](std::uint64_t& value) {
      if (value != k_in_the_extra_field) return;
      value = eight(extra, field);
      field += 8;
    };
    take(entry.bytes);
    take(packed_bytes);
    take(entry.own_header);
    return;
  }
}

std::vector<Entry> entries_of(Source& source) {
  const Directory directory = directory_of(source);
  const std::string text = source.read(directory.begin, directory.bytes);
  std::vector<Entry> entries;
  std::size_t at = 0;
  for (std::uint64_t i = 0; i < directory.entries; ++i) {
    if (four(text, at) != k_entry) throw std::runtime_error("the zip file's directory is not whole");
    const std::size_t name = at + 46;
    const std::size_t extra = name + two(text, at + 28);
    const std::size_t comment = extra + two(text, at + 30);
    Entry entry;
    entry.name = text.substr(name, extra - name);
    entry.has_descriptor = (two(text, at + 8) & 8U) != 0;
    entry.is_packed = two(text, at + 10) != 0;
    entry.bytes = four(text, at + 24);
    entry.own_header = four(text, at + 42);
    entry.checksum_at = directory.begin + at + 16;
    widen(text.substr(extra, comment - extra), four(text, at + 20), entry);
    entries.push_back(std::move(entry));
    at = comment + two(text, at + 32);
  }
  return entries;
}

// Bytes that take the place of others.
struct Patch {
  std::uint64_t at = 0;
  std::string own = {};                  // these,
  std::span<const std::byte> lent = {};  // or these

  [[nodiscard]] std::span<const std::byte> bytes() const { return lent.empty() ? std::as_bytes(std::span(own)) : lent; }
};

void add_patches(Source& source, const Entry& entry, std::span<const std::byte> bytes, std::vector<Patch>& patches) {
  if (entry.is_packed || bytes.size() != entry.bytes)
    throw std::runtime_error(
        fmt::format("the record {} is packed, or has {} bytes instead of {}", entry.name, entry.bytes, bytes.size()));
  const std::string header = source.read(entry.own_header, 30);
  if (four(header, 0) != k_own_header) throw std::runtime_error("the record " + entry.name + " has no header");
  const std::uint64_t begin = entry.own_header + 30 + two(header, 26) + two(header, 28);
  const std::uint32_t checksum = checksum_of(bytes);
  std::string text;
  for (unsigned shift = 0; shift < 32; shift += 8) text += static_cast<char>((checksum >> shift) & 0xff);
  patches.push_back({.at = entry.checksum_at, .own = text});
  if (!bytes.empty()) patches.push_back({.at = begin, .lent = bytes});
  if (!entry.has_descriptor) {
    patches.push_back({.at = entry.own_header + 14, .own = text});
    return;
  }
  const std::uint64_t behind = begin + entry.bytes;  // the descriptor's mark may be left out
  const bool is_marked = four(source.read(behind, 4), 0) == k_descriptor;
  patches.push_back({.at = behind + (is_marked ? 4 : 0), .own = text});
}

std::vector<Patch> patches_of(Source& source, const RecordBytes& records) {
  std::vector<Patch> patches;
  std::size_t found = 0;
  for (const Entry& entry : entries_of(source)) {
    const auto record = records.find(entry.name);
    if (record == records.end()) continue;
    add_patches(source, entry, record->second, patches);
    ++found;
  }
  if (found != records.size())
    throw std::runtime_error(fmt::format("the zip file has {} of {} records", found, records.size()));
  std::ranges::sort(patches, {}, &Patch::at);
  return patches;
}

void copy_range(Source& source, std::uint64_t begin, std::uint64_t end, DurableFile& out) {
  constexpr std::uint64_t k_block_bytes = 1U << 20;
  if (begin > end) throw std::runtime_error("records of the zip file overlap");
  for (std::uint64_t at = begin; at < end; at += k_block_bytes) {
    const std::string block = source.read(at, std::min(k_block_bytes, end - at));
    out.write(std::as_bytes(std::span(block)));
  }
}

}  // namespace

Checksum copy_with_records(const fs::path& source_file, const fs::path& target, const RecordBytes& records) {
  Source source(source_file);
  const std::vector<Patch> patches = patches_of(source, records);
  DurableFile out(target);
  std::uint64_t at = 0;
  for (const Patch& patch : patches) {
    copy_range(source, at, patch.at, out);
    out.write(patch.bytes());
    at = patch.at + patch.bytes().size();
  }
  copy_range(source, at, source.bytes(), out);
  return out.commit();
}

}  // namespace onebatch
