#include "trainer/io/contents.hpp"

#include "scratch_folder.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <vector>

namespace onebatch {
namespace {

using testing::ScratchFolder;

constexpr std::uint64_t k_mega = std::uint64_t{1} << 20;

// A file of zeros that takes no room, but for `byte` at `place`.
DataFile file_of(const std::filesystem::path& path, std::uint64_t bytes, std::uint64_t place, char byte) {
  std::ofstream(path).close();
  std::filesystem::resize_file(path, bytes);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(place)).put(byte);
  file.close();
  return DataFile(path);
}

Checksum contents(const std::vector<FileRegion>& regions) {
  ChecksumStream stream;
  add_contents(stream, regions);
  return stream.value();
}

TEST(ContentsTest, every_byte_counts_up_to_64_MiB) {
  const ScratchFolder folder;
  const DataFile zeros = file_of(folder / "zeros", 64 * k_mega, 0, 0);
  for (const std::uint64_t place : {std::uint64_t{0}, 17 * k_mega + 3, 64 * k_mega - 1}) {
    const DataFile other = file_of(folder / "other", 64 * k_mega, place, 1);
    EXPECT_NE(contents({{&zeros, 0, zeros.bytes()}}), contents({{&other, 0, other.bytes()}})) << place;
  }
}

TEST(ContentsTest, of_more_the_first_the_last_and_many_between_count) {
  const ScratchFolder folder;
  const std::uint64_t bytes = 6300 * k_mega;  // 64 places, 100 MiB from one to the next and a little less
  const DataFile zeros = file_of(folder / "zeros", bytes, 0, 0);
  for (const std::uint64_t place : {std::uint64_t{0}, 100 * k_mega, bytes - 1}) {
    const DataFile other = file_of(folder / "other", bytes, place, 1);
    EXPECT_NE(contents({{&zeros, 0, bytes}}), contents({{&other, 0, bytes}})) << place;
  }
  const DataFile other = file_of(folder / "other", bytes, 50 * k_mega, 1);
  EXPECT_EQ(contents({{&zeros, 0, bytes}}), contents({{&other, 0, bytes}})) << "as is said of it";
}

TEST(ContentsTest, where_the_bytes_lie_does_not_count) {
  const ScratchFolder folder;
  const DataFile whole = file_of(folder / "whole", 5 * k_mega, 2 * k_mega + 10, 7);
  const DataFile first = file_of(folder / "first", 1000 + 2 * k_mega, 0, 9);
  const DataFile second = file_of(folder / "second", 3 * k_mega, 10, 7);
  const Checksum expected = contents({{&whole, 0, whole.bytes()}});
  EXPECT_EQ(contents({{&first, 1000, 2 * k_mega}, {&second, 0, 3 * k_mega}}), expected);
  EXPECT_NE(contents({{&second, 0, 3 * k_mega}, {&first, 1000, 2 * k_mega}}), expected);
  EXPECT_NE(contents({{&whole, 0, whole.bytes() - 1}}), expected) << "nor is a zero nothing";
}

}  // namespace
}  // namespace onebatch
