#include "trainer/data/shard_index.hpp"

#include "tests/unit/scratch_folder.hpp"
#include "tests/unit/tar_member.hpp"
#include "trainer/base/error.hpp"
#include "trainer/io/checksum.hpp"
#include "trainer/io/durable_file.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

namespace onebatch {
namespace {

using testing::ScratchFolder;
using testing::tar_member;
using testing::write_bytes;

namespace fs = std::filesystem;
using Sizes = std::vector<std::uint64_t>;

std::string shard(const std::vector<std::string>& contents) {
  std::string all;
  for (std::size_t i = 0; i < contents.size(); ++i) all += tar_member(fmt::format("{}.cls", i), contents[i]);
  return all + std::string(1024, '\0');
}

class ShardIndexTest : public ::testing::Test {
 protected:
  ShardIndexTest() { ::setenv("XDG_CACHE_HOME", (folder_ / "cache").c_str(), 1); }
  ~ShardIndexTest() override { ::unsetenv("XDG_CACHE_HOME"); }

  [[nodiscard]] std::vector<std::uint64_t> sizes(const std::vector<std::string>& endings = {"cls"}) const {
    std::vector<std::uint64_t> sizes;
    for (const TarPlace& place : remembered_samples(DataFile(file()), endings)) sizes.push_back(place.bytes);
    return sizes;
  }
  // A file is remembered when it is a second old.
  [[nodiscard]] Sizes remembered_sizes() const {
    const auto begin = std::chrono::steady_clock::now();
    Sizes found = sizes();
    while (entries().empty() && std::chrono::steady_clock::now() - begin < std::chrono::seconds(20)) found = sizes();
    return found;
  }
  [[nodiscard]] fs::path file() const { return folder_ / "a.tar"; }
  [[nodiscard]] static std::vector<fs::path> entries() {
    std::vector<fs::path> entries;
    if (!fs::is_directory(shard_index_folder())) return entries;
    for (const auto& entry : fs::directory_iterator(shard_index_folder())) entries.push_back(entry.path());
    return entries;
  }
  // Says of the first sample that it has so many bytes, as a whole entry would.
  static void forge(std::uint64_t bytes) {
    const fs::path entry = entries().at(0);
    std::string text = read_text(entry).substr(33);
    const std::size_t places = text.find("\n\n") + 2;
    text.replace(places + 8, 8, reinterpret_cast<const char*>(&bytes), 8);
    ChecksumStream sum;
    sum.update(std::as_bytes(std::span(text)));
    write_bytes(entry, to_text(sum.value()) + "\n" + text);
  }

  ScratchFolder folder_;
};

TEST_F(ShardIndexTest, what_was_found_is_remembered) {
  write_bytes(file(), shard({"7", "12", "345"}));
  EXPECT_EQ(remembered_sizes(), (Sizes{1, 2, 3}));
  ASSERT_EQ(entries().size(), 1U);
  forge(9);
  EXPECT_EQ(sizes(), (Sizes{9, 2, 3})) << "the headers are not looked at again";
}

TEST_F(ShardIndexTest, a_shard_behind_another_is_no_end) {
  write_bytes(file(), shard({"7"}) + std::string(9000, '\0'));  // tar fills its last record up
  EXPECT_EQ(sizes(), (Sizes{1}));
  write_bytes(file(), shard({"7"}) + shard({"12"}));
  try {
    static_cast<void>(sizes());
    FAIL() << "the second one was lost";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("something follows its end: where several were joined"),
              std::string::npos);
  }
}

TEST_F(ShardIndexTest, a_changed_shard_is_seen) {
  write_bytes(file(), shard({"7", "12", "345"}));
  EXPECT_EQ(remembered_sizes(), (Sizes{1, 2, 3}));
  const auto before = fs::last_write_time(file());
  write_bytes(file(), shard({"789", "1", "3"}));  // of the same size
  fs::last_write_time(file(), before);            // and of the same time, as archives restore it
  EXPECT_EQ(sizes(), (Sizes{3, 1, 1}));
  fs::rename(file(), folder_ / "old.tar");
  write_bytes(file(), shard({"2"}));
  EXPECT_EQ(sizes(), (Sizes{1}));
}

TEST_F(ShardIndexTest, what_has_just_been_written_is_not_remembered) {
  for (const char* content : {"1", "2", "3"}) {
    write_bytes(file(), shard({content, "12"}));
    EXPECT_EQ(sizes(), (Sizes{1, 2}));
    EXPECT_TRUE(entries().empty());
  }
}

TEST_F(ShardIndexTest, other_endings_are_another_index) {
  write_bytes(file(), shard({"7", "12"}));
  EXPECT_EQ(remembered_sizes(), (Sizes{1, 2}));
  EXPECT_THROW(sizes({"npy"}), UserError);
  EXPECT_EQ(entries().size(), 1U);
}

TEST_F(ShardIndexTest, a_damaged_entry_is_made_anew) {
  write_bytes(file(), shard({"7", "12", "345"}));
  EXPECT_EQ(remembered_sizes(), (Sizes{1, 2, 3}));
  const std::string whole = read_text(entries().at(0));
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    write_bytes(entries().at(0), damaged);
    ASSERT_EQ(sizes(), (Sizes{1, 2, 3})) << "byte " << at;
  }
  write_bytes(entries().at(0), whole.substr(0, whole.size() - 5));
  EXPECT_EQ(sizes(), (Sizes{1, 2, 3}));
  forge(std::uint64_t{1} << 40);
  EXPECT_EQ(sizes(), (Sizes{1, 2, 3})) << "a place beyond the file";
  EXPECT_EQ(read_text(entries().at(0)), whole);
}

TEST_F(ShardIndexTest, without_room_nothing_is_kept) {
  write_bytes(file(), shard({"7", "12"}));
  write_bytes(folder_ / "cache", "a file where the folder would be");
  EXPECT_EQ(sizes(), (Sizes{1, 2}));
}

}  // namespace
}  // namespace onebatch
