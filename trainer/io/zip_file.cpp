#include "trainer/io/zip_file.hpp"

#include <fmt/format.h>
#include <zip.h>
#include <zlib.h>

#include <algorithm>
#include <memory>
#include <set>
#include <stdexcept>

namespace onebatch {
namespace {

constexpr std::uint64_t k_most_packed = 1032;  // times smaller that deflate makes anything

struct Discard {
  void operator()(zip_t* zip) const { zip_discard(zip); }
  void operator()(zip_file_t* record) const { zip_fclose(record); }
};
using Zip = std::unique_ptr<zip_t, Discard>;
using OpenRecord = std::unique_ptr<zip_file_t, Discard>;

Zip open_zip(const std::string& file) {
  int code = 0;
  Zip zip(zip_open(file.c_str(), ZIP_RDONLY | ZIP_CHECKCONS, &code));
  if (zip != nullptr) return zip;
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  const std::string text = zip_error_strerror(&error);
  zip_error_fini(&error);
  throw std::runtime_error("it is no whole zip file: " + text);
}

[[noreturn]] void fail(const std::string& name, const std::string& what) {
  throw std::runtime_error("its record " + name + " " + what);
}

void check_name(const std::string& name) {
  if (name.empty() || name.front() == '/' || name.find('\\') != std::string::npos ||
      name.find(':') != std::string::npos)
    fail("\"" + name + "\"", "has no name that lies in the archive");
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") fail("\"" + name + "\"", "has no name that lies in the archive");
    begin = end + 1;
  }
}

// LibTorch leaves memory as it was for a record that says that it is a folder.
bool is_folder(zip_t* zip, zip_uint64_t index) {
  constexpr zip_uint32_t k_folder = 0x10;
  zip_uint8_t system = 0;
  zip_uint32_t attributes = 0;
  return zip_file_get_external_attributes(zip, index, 0, &system, &attributes) != 0 || (attributes & k_folder) != 0;
}

void check_claims(const ZipRecord& record, const zip_stat_t& stat) {
  if (stat.encryption_method != ZIP_EM_NONE) fail(record.name, "is encrypted");
  if (stat.comp_method != ZIP_CM_STORE && stat.comp_method != ZIP_CM_DEFLATE)
    fail(record.name, fmt::format("is packed by method {}, which LibTorch does not read", stat.comp_method));
  const bool stored = stat.comp_method == ZIP_CM_STORE;
  if (stored ? stat.size != stat.comp_size : stat.size / k_most_packed > stat.comp_size)
    fail(record.name, fmt::format("is said to hold {} bytes, in {}", stat.size, stat.comp_size));
}

// To its end, where the library compares size and checksum.
void read_record(zip_t* zip, zip_uint64_t index, bool kept, ZipRecord& record) {
  const OpenRecord open(zip_fopen_index(zip, index, 0));
  if (open == nullptr) fail(record.name, std::string("cannot be read: ") + zip_strerror(zip));
  std::string block(std::size_t{1} << 18, '\0');
  if (kept && record.bytes == record.packed_bytes) record.content.reserve(record.bytes);  // as large as in the file
  std::uint64_t total = 0;
  for (;;) {
    const zip_int64_t read = zip_fread(open.get(), block.data(), block.size());
    if (read < 0) fail(record.name, std::string("is damaged: ") + zip_error_strerror(zip_file_get_error(open.get())));
    if (read == 0) break;
    total += static_cast<std::uint64_t>(read);
    if (total > record.bytes) break;
    if (kept) record.content.append(block, 0, static_cast<std::size_t>(read));
  }
  if (total != record.bytes)
    fail(record.name, fmt::format("does not hold the {} bytes that it is said to", record.bytes));
}

}  // namespace

std::vector<ZipRecord> read_zip(const std::string& file, const std::function<ZipContent(const ZipRecord&)>& choose) {
  const Zip zip = open_zip(file);
  const zip_int64_t count = zip_get_num_entries(zip.get(), 0);
  std::vector<ZipRecord> records;
  std::set<std::string> names;
  for (zip_int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<zip_uint64_t>(i);
    zip_stat_t stat;
    const char* name = zip_get_name(zip.get(), index, ZIP_FL_ENC_RAW);
    constexpr zip_uint64_t k_needed =
        ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD | ZIP_STAT_CRC;
    if (name == nullptr || zip_stat_index(zip.get(), index, 0, &stat) != 0 || (stat.valid & k_needed) != k_needed)
      throw std::runtime_error("its directory cannot be read: " + std::string(zip_strerror(zip.get())));
    ZipRecord record{name, stat.size, stat.comp_size, stat.crc, {}};
    check_name(record.name);
    if (!names.insert(record.name).second) fail(record.name, "is there twice");
    if (is_folder(zip.get(), index)) fail(record.name, "is said to be a folder");
    check_claims(record, stat);
    const ZipContent content = choose(record);
    if (content != ZipContent::left || record.bytes != record.packed_bytes)
      read_record(zip.get(), index, content == ZipContent::kept, record);
    records.push_back(std::move(record));
  }
  return records;
}

std::uint32_t checksum_of(std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace onebatch
