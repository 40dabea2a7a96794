#include "trainer/io/zip_records.hpp"

#include "scratch_folder.hpp"

#include <gmock/gmock.h>

#include <vector>

namespace onebatch {
namespace {

using ::testing::HasSubstr;
using testing::read_bytes;
using testing::ScratchFolder;
using testing::write_bytes;

// The CRC-32 of "123456789", as catalogues of checksums give it, and of nothing.
constexpr std::uint32_t k_of_digits = 0xcbf43926;
constexpr std::uint32_t k_of_nothing = 0;

enum class Checksums { in_headers, behind_records, behind_records_marked };

struct Record {
  std::string name;
  std::string content;
  std::uint32_t checksum = 0;
  std::uint16_t method = 0;
};

std::string little(std::uint64_t number, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>((number >> (8 * i)) & 0xff);
  return text;
}

// By PKWARE's APPNOTE.TXT, 4.3: what is left out here is 0.
std::string zip_of(const std::vector<Record>& records, Checksums where, const std::string& comment = "") {
  const bool behind = where != Checksums::in_headers;
  std::string file = "";
  std::string directory = "";
  for (const Record& record : records) {
    const std::uint64_t begin = file.size();
    const std::string kind = little(20, 2) + little(behind ? 8 : 0, 2) + little(record.method, 2) + little(0, 4);
    const std::string sizes = little(record.content.size(), 4) + little(record.content.size(), 4);
    const std::string checksum = little(record.checksum, 4);
    const std::string padding = "FB" + little(3, 2) + "ZZZ";
    file += little(0x04034b50, 4) + kind + (behind ? little(0, 4) + little(0, 8) : checksum + sizes);
    file += little(record.name.size(), 2) + little(padding.size(), 2) + record.name + padding + record.content;
    if (where == Checksums::behind_records_marked) file += little(0x08074b50, 4);
    if (behind) file += checksum + sizes;
    directory += little(0x02014b50, 4) + little(20, 2) + kind + checksum + sizes + little(record.name.size(), 2);
    directory += little(0, 12) + little(begin, 4) + record.name;
  }
  return file + directory + little(0x06054b50, 4) + little(0, 4) + little(records.size(), 2) +
         little(records.size(), 2) + little(directory.size(), 4) + little(file.size(), 4) + little(comment.size(), 2) +
         comment;
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

const std::string k_digits = "123456789";

TEST(ZipRecordsTest, replaced_bytes_and_their_checksums_are_all_that_differs) {
  const ScratchFolder folder;
  for (const Checksums where : {Checksums::in_headers, Checksums::behind_records, Checksums::behind_records_marked}) {
    const Record first{"m/first", "abcdefghi", 0x11111111};
    const Record kept{"m/kept", "PK\x05\x06 is no end", 0x22222222};
    const Record empty{"m/empty", "", k_of_nothing};
    // A comment may have the mark of the end in it.
    const std::string comment = std::string("by PK\x05\x06") + std::string(30, 'x');
    write_bytes(folder / "source", zip_of({first, kept, empty}, where, comment));
    copy_with_records(folder / "source", folder / "target", {{"m/first", bytes_of(k_digits)}, {"m/empty", {}}});
    EXPECT_EQ(read_bytes(folder / "target"), zip_of({{"m/first", k_digits, k_of_digits}, kept, empty}, where, comment));
  }
}

std::string refusal(const ScratchFolder& folder, const RecordBytes& records) {
  try {
    copy_with_records(folder / "source", folder / "target", records);
  } catch (const std::runtime_error& error) {
    EXPECT_FALSE(std::filesystem::exists(folder / "target"));
    return error.what();
  }
  return "nothing was refused";
}

TEST(ZipRecordsTest, a_record_that_does_not_fit_is_named_and_nothing_is_written) {
  const ScratchFolder folder;
  write_bytes(folder / "source",
              zip_of({{"m/short", "abc", 1}, {"m/packed", "abcdefghi", 1, 8}}, Checksums::in_headers));
  EXPECT_THAT(refusal(folder, {{"m/short", bytes_of(k_digits)}}), HasSubstr("m/short is packed, or has 3 bytes"));
  EXPECT_THAT(refusal(folder, {{"m/packed", bytes_of(k_digits)}}), HasSubstr("m/packed is packed"));
  EXPECT_THAT(refusal(folder, {{"m/missing", bytes_of(k_digits)}}), HasSubstr("0 of 1 records"));
}

TEST(ZipRecordsTest, a_file_that_is_cut_anywhere_is_refused) {
  const ScratchFolder folder;
  const std::string whole = zip_of({{"m/first", "abcdefghi", 1}}, Checksums::behind_records_marked);
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    write_bytes(folder / "source", whole.substr(0, bytes));
    EXPECT_NE(refusal(folder, {{"m/first", bytes_of(k_digits)}}), "nothing was refused") << bytes;
  }
}

}  // namespace
}  // namespace onebatch
