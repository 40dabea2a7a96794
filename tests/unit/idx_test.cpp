#include "trainer/data/idx.hpp"

#include "scratch_folder.hpp"
#include "trainer/base/error.hpp"

#include <gmock/gmock.h>
#include <zlib.h>

#include <random>

namespace onebatch {
namespace {

using ::testing::HasSubstr;
using testing::ScratchFolder;
using testing::write_bytes;

std::string idx_bytes(const std::vector<std::uint32_t>& shape, const std::string& values) {
  std::string bytes = {0, 0, 8, static_cast<char>(shape.size())};
  for (const std::uint32_t size : shape) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(size >> shift & 0xff);
  }
  return bytes + values;
}

void write_gzip(const std::filesystem::path& file, const std::string& bytes) {
  gzFile out = gzopen(file.c_str(), "wb");
  gzwrite(out, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(out);
}

std::string refusal(const std::filesystem::path& file, std::int64_t dimensions) {
  try {
    read_idx(file, dimensions);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(IdxTest, plain_and_gzip_are_read_alike) {
  const ScratchFolder folder;
  const std::string bytes = idx_bytes({2, 1, 3}, std::string("\x01\x02\x03\x04\x05\x06", 6));
  write_bytes(folder / "plain", bytes);
  write_gzip(folder / "packed", bytes);
  for (const char* name : {"plain", "packed"}) {
    const IdxArray array = read_idx(folder / name, 3);
    EXPECT_EQ(array.shape, (std::vector<std::int64_t>{2, 1, 3}));
    EXPECT_EQ(array.values, (std::vector<std::uint8_t>{1, 2, 3, 4, 5, 6}));
  }
}

TEST(IdxTest, the_digits_are_whole) {
  const IdxArray images = read_idx(find_idx(ONEBATCH_DIGITS, "train-images-idx3-ubyte"), 3);
  const IdxArray labels = read_idx(find_idx(ONEBATCH_DIGITS, "t10k-labels-idx1-ubyte"), 1);
  EXPECT_EQ(images.shape, (std::vector<std::int64_t>{1500, 8, 8}));
  EXPECT_EQ(labels.shape, (std::vector<std::int64_t>{297}));
  EXPECT_EQ(*std::max_element(images.values.begin(), images.values.end()), 16);
}

TEST(IdxTest, every_truncation_is_refused) {
  const ScratchFolder folder;
  const std::string bytes = idx_bytes({3, 2}, "abcdef");
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    write_bytes(folder / "cut", bytes.substr(0, length));
    EXPECT_THAT(refusal(folder / "cut", 2), HasSubstr("cut")) << length;
  }
  write_gzip(folder / "whole.gz", bytes);
  const std::string packed = testing::read_bytes(folder / "whole.gz");
  for (std::size_t length = 0; length + 9 < packed.size(); ++length) {
    write_bytes(folder / "cut", packed.substr(0, length));
    EXPECT_THAT(refusal(folder / "cut", 2), HasSubstr("cut")) << length;
  }
}

TEST(IdxTest, lies_about_the_size_are_refused_without_allocating) {
  const ScratchFolder folder;
  write_bytes(folder / "huge", idx_bytes({0xffffffff, 0xffffffff, 0xffffffff}, "abc"));
  EXPECT_THAT(refusal(folder / "huge", 3), HasSubstr("more than a file of this length can"));
  write_bytes(folder / "long", idx_bytes({2}, "abc"));
  EXPECT_THAT(refusal(folder / "long", 1), HasSubstr("longer than its header says"));
}

TEST(IdxTest, other_formats_are_named) {
  const ScratchFolder folder;
  write_bytes(folder / "text", "hello, world");
  EXPECT_THAT(refusal(folder / "text", 1), HasSubstr("magic number"));
  write_bytes(folder / "floats", std::string("\0\0\x0d\x01\0\0\0\x01____", 12));
  EXPECT_THAT(refusal(folder / "floats", 1), HasSubstr("type 13"));
  write_bytes(folder / "labels", idx_bytes({2}, "ab"));
  EXPECT_THAT(refusal(folder / "labels", 3), HasSubstr("1 dimension"));
  EXPECT_THAT(refusal(folder / "nowhere", 3), HasSubstr("nowhere"));
  EXPECT_THROW(find_idx(folder.path(), "train-images-idx3-ubyte"), UserError);
}

TEST(IdxTest, random_damage_never_crashes_or_misleads) {
  const ScratchFolder folder;
  const std::string whole = idx_bytes({4, 2, 2}, "0123456789abcdef");
  std::mt19937 generator(11);
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = whole;
    for (int flips = 0; flips < 2; ++flips) bytes[generator() % 16] = static_cast<char>(generator() % 256);
    write_bytes(folder / "damaged", bytes);
    try {
      const IdxArray array = read_idx(folder / "damaged", 3);
      EXPECT_EQ(array.values.size(), 16U);
      EXPECT_EQ(array.shape[0] * array.shape[1] * array.shape[2], 16);
    } catch (const UserError&) {
    }
  }
}

}  // namespace
}  // namespace onebatch
