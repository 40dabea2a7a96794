#include "trainer/data/token_files.hpp"

#include "tests/unit/scratch_folder.hpp"
#include "trainer/base/error.hpp"
#include "trainer/base/mix_bits.hpp"
#include "trainer/data/file_list.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstring>
#include <numeric>

namespace onebatch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ScratchFolder;
using testing::write_bytes;

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

template <typename T>
std::string llm_c(std::int32_t magic, std::int32_t version, const std::vector<T>& tokens) {
  std::vector<std::int32_t> header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = static_cast<std::int32_t>(tokens.size());
  return bytes_of(header) + bytes_of(tokens);
}

template <typename T>
std::vector<T> counted(std::size_t count, T first) {
  std::vector<T> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

std::vector<std::int64_t> block_of(const TokenFiles& files, std::int64_t block) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(files.block_size()) + 1);
  files.read(block, tokens);
  return tokens;
}

std::string refusal_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const UserError& error) {
    return error.what();
  }
  return "nothing was refused";
}

std::string digest_of(const ScratchFolder& folder, const std::vector<std::string>& contents) {
  std::vector<std::filesystem::path> files;
  for (const std::string& bytes : contents) {
    files.push_back(folder / fmt::format("{}.bin", files.size()));
    write_bytes(files.back(), bytes);
  }
  return TokenFiles(files, TokenType::automatic, 3).digest();
}

TEST(TokenFilesTest, the_digest_is_of_the_blocks) {
  const ScratchFolder folder;
  const auto some = [](std::size_t count, int first) {
    return bytes_of(counted<std::uint16_t>(count, static_cast<std::uint16_t>(first)));
  };
  const std::string digest = digest_of(folder, {some(9, 100), some(7, 109)});
  EXPECT_EQ(digest_of(folder, {some(9, 100), some(7, 109)}), digest);
  EXPECT_EQ(digest_of(folder, {some(8, 100), some(3, 7), some(9, 109)}), digest)
      << "what is in no block does not count";
  EXPECT_EQ(digest_of(folder, {llm_c(20240520, 1, counted<std::uint16_t>(9, 100)), some(7, 109)}), digest);
  EXPECT_NE(digest_of(folder, {some(9, 100), some(7, 110)}), digest);
  EXPECT_NE(digest_of(folder, {some(7, 109), some(9, 100)}), digest) << "their order counts";
  // 7 + 4 and 4 + 7 tokens of 100, 101, …: one after another the same bytes, and blocks of other tokens.
  EXPECT_NE(digest_of(folder, {some(7, 100), some(4, 107)}), digest_of(folder, {some(4, 100), some(7, 104)}));
}

TEST(TokenFilesTest, blocks_are_counted_through_files_and_lie_in_one) {
  const ScratchFolder folder;
  write_bytes(folder / "a.bin", bytes_of(counted<std::uint16_t>(12, 100)));           // 3 blocks of 3, 2 left
  write_bytes(folder / "b.bin", bytes_of(counted<std::uint16_t>(3, 200)));            // none
  write_bytes(folder / "c.bin", llm_c(20240520, 1, counted<std::uint16_t>(4, 300)));  // 1, exactly
  write_bytes(folder / "d.bin", llm_c(20240801, 7, counted<std::uint32_t>(8, 4'000'000'000U)));  // 2
  const TokenFiles files({folder / "a.bin", folder / "b.bin", folder / "c.bin", folder / "d.bin"}, TokenType::automatic,
                         3);
  EXPECT_EQ(files.blocks(), 6);
  EXPECT_THAT(block_of(files, 0), ElementsAre(100, 101, 102, 103));
  EXPECT_THAT(block_of(files, 2), ElementsAre(106, 107, 108, 109));
  EXPECT_THAT(block_of(files, 3), ElementsAre(300, 301, 302, 303));
  EXPECT_THAT(block_of(files, 5), ElementsAre(4'000'000'003, 4'000'000'004, 4'000'000'005, 4'000'000'006));
  EXPECT_THROW(block_of(files, 6), std::out_of_range);
  EXPECT_THROW(block_of(files, -1), std::out_of_range);
}

TEST(TokenFilesTest, numbers_of_32_and_64_bits_are_not_taken_for_16) {
  const ScratchFolder folder;
  const auto open = [&](TokenType type) { return TokenFiles({folder / "a.bin"}, type, 3); };
  write_bytes(folder / "a.bin", bytes_of(counted<std::uint32_t>(40, 7)));
  EXPECT_THAT(refusal_of([&] { open(TokenType::automatic); }),
              HasSubstr("every second is below 1, as in a file of larger ones: write data.token_type = \"uint32\""));
  EXPECT_THAT(block_of(open(TokenType::uint32), 0), ElementsAre(7, 8, 9, 10));
  EXPECT_THAT(block_of(open(TokenType::uint16), 0), ElementsAre(7, 0, 8, 0));
  write_bytes(folder / "a.bin", bytes_of(counted<std::int64_t>(40, 7)));
  EXPECT_THAT(refusal_of([&] { open(TokenType::automatic); }), HasSubstr("every second is below 1"));
  write_bytes(folder / "a.bin", bytes_of(counted<std::uint32_t>(40, 65'520)));  // some above 16 bits
  EXPECT_THAT(refusal_of([&] { open(TokenType::automatic); }), HasSubstr("every second is below 2"));
  std::vector<std::uint16_t> padded(80, 0);
  padded[0] = 500;
  std::vector<std::uint16_t> few(80);
  for (std::size_t i = 0; i < few.size(); ++i) few[i] = static_cast<std::uint16_t>(i * i % 5);
  for (const auto& tokens : {padded, few}) {
    write_bytes(folder / "a.bin", bytes_of(tokens));
    EXPECT_EQ(open(TokenType::automatic).blocks(), 26);
  }
}

TEST(TokenFilesTest, tokens_that_are_in_no_sample_are_counted) {
  const ScratchFolder folder;
  write_bytes(folder / "a.bin", bytes_of(counted<std::uint16_t>(10, 1)));
  write_bytes(folder / "b.bin", bytes_of(counted<std::uint16_t>(7, 1)));
  write_bytes(folder / "c.bin", bytes_of(counted<std::uint16_t>(3, 1)));
  const auto said = [&](const std::vector<std::filesystem::path>& files) {
    return TokenFiles(files, TokenType::automatic, 3).about_unused();
  };
  EXPECT_EQ(said({folder / "a.bin", folder / "b.bin"}), "") << "what is left over is a block's last token";
  EXPECT_THAT(
      said({folder / "a.bin", folder / "b.bin", folder / "c.bin"}),
      AllOf(HasSubstr("3 of the 20 tokens (15.0 %) are in no sample"), HasSubstr("1 of the 3 files hold none")));
}

TEST(TokenFilesTest, bytes_are_tokens_too) {
  const ScratchFolder folder;
  write_bytes(folder / "text.txt", "hello");
  const TokenFiles files({folder / "text.txt"}, TokenType::uint8, 2);
  EXPECT_EQ(files.blocks(), 2);
  EXPECT_THAT(block_of(files, 1), ElementsAre('l', 'l', 'o'));
}

TEST(TokenFilesTest, the_extremes_are_those_of_the_blocks_with_the_sample_that_predicts_them) {
  const ScratchFolder folder;
  std::vector<std::uint16_t> tokens(3'000'000, 7);
  tokens[2'500'001] = 9;
  tokens[2'999'998] = 60000;  // the last one of the last block
  tokens[2'999'999] = 65000;  // in none
  tokens[1'000'000] = 3;      // is given by block 249,999, and begins the next
  write_bytes(folder / "a.bin", bytes_of(tokens));
  // 2,999,999 = 749,999 blocks of 4 and 3 more, of which none is used.
  const auto range = TokenFiles({folder / "a.bin"}, TokenType::uint16, 4).look_through();
  EXPECT_EQ(range.least.token, 3);
  EXPECT_EQ(range.least.block, 249'999);
  EXPECT_EQ(range.largest.token, 9);
  EXPECT_EQ(range.largest.block, 625'000);
  EXPECT_EQ(TokenFiles({folder / "a.bin"}, TokenType::uint16, 1).look_through().largest.token, 65000);
}

TEST(TokenFilesTest, each_mistake_is_named) {
  const ScratchFolder folder;
  const auto refused = [&](const std::string& bytes, TokenType type) {
    write_bytes(folder / "a.bin", bytes);
    return refusal_of([&] { TokenFiles({folder / "a.bin"}, type, 2); });
  };
  const auto tokens = counted<std::uint16_t>(9, 0);
  EXPECT_THAT(refused("", TokenType::automatic),
              HasSubstr("holds 0 tokens: a block of data.block_size = 2 needs one more"));
  EXPECT_THAT(refused("abcd", TokenType::automatic), HasSubstr("holds 2 tokens"));
  EXPECT_THAT(refused("abc", TokenType::automatic), HasSubstr("has 3 bytes, which are no whole number of tokens of 2"));
  EXPECT_THAT(refused("abcdef", TokenType::uint32), HasSubstr("no whole number of tokens of 4"));
  EXPECT_THAT(refused(llm_c(20240520, 2, tokens), TokenType::automatic), HasSubstr("the version 2, and 1 is"));
  EXPECT_THAT(refused(llm_c(20240520, 1, tokens), TokenType::uint32), HasSubstr("or write \"uint16\""));
  EXPECT_THAT(refused(llm_c(20240520, 1, tokens) + "xy", TokenType::automatic),
              HasSubstr("says 9 tokens of 2 bytes, and 20 bytes"));
  EXPECT_THAT(refused(llm_c(20240801, 7, tokens), TokenType::automatic),
              HasSubstr("says 9 tokens of 4 bytes, and 18 bytes"));
  EXPECT_THAT(refusal_of([&] { DataFile(folder / "none.bin"); }), HasSubstr("none.bin: No such file"));
  EXPECT_THAT(refusal_of([&] { DataFile(folder.path()); }), HasSubstr("it is no file"));
}

TEST(TokenFilesTest, a_file_that_changes_or_shrinks_is_an_error) {
  for (const Between between : {Between::open, Between::closed}) {
    const ScratchFolder folder;
    write_bytes(folder / "a.bin", bytes_of(counted<std::uint16_t>(100'000, 0)));
    const DataFile file(folder / "a.bin", between);
    std::vector<std::byte> some(1000);
    file.read(199'000, some);
    EXPECT_THAT(refusal_of([&] { file.read(199'001, some); }), HasSubstr("ends at byte 200000"));
    std::filesystem::resize_file(folder / "a.bin", 4096);
    EXPECT_THAT(refusal_of([&] { file.read(199'000, some); }),
                HasSubstr("was changed while it is trained on (it had 200000 bytes, it has 4096)"));
    EXPECT_THAT(refusal_of([&] { file.read(0, some); }), HasSubstr("was changed"));
  }
}

TEST(TokenFilesTest, another_file_under_the_name_is_noticed_where_files_are_closed) {
  const ScratchFolder folder;
  write_bytes(folder / "a.bin", "abcd");
  const DataFile file(folder / "a.bin", Between::closed);
  write_bytes(folder / "b.bin", "abcd");
  std::filesystem::rename(folder / "b.bin", folder / "a.bin");
  std::vector<std::byte> some(2);
  EXPECT_THAT(refusal_of([&] { file.read(0, some); }), HasSubstr("was changed"));
}

// Whatever bytes there are: they are read or refused by UserError, and nothing else happens.
TEST(TokenFilesTest, a_thousand_damaged_files_are_read_or_refused) {
  const ScratchFolder folder;
  const std::string whole = llm_c(20240520, 1, counted<std::uint16_t>(500, 0));
  int refused = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    std::string bytes = whole;
    const std::uint64_t bits = mix_bits(i);
    if (i % 4 == 0) bytes.resize(bits % bytes.size());
    if (i % 4 == 1) bytes.append(bits % 9 + 1, 'x');
    if (i % 4 >= 2) bytes[(bits >> 8) % (i % 4 == 2 ? 12 : bytes.size())] ^= static_cast<char>(1U << (bits % 8));
    write_bytes(folder / "a.bin", bytes);
    const auto work = [&] {
      const TokenFiles files({folder / "a.bin"}, TokenType::automatic, 10);
      for (std::int64_t block = 0; block < files.blocks(); ++block) block_of(files, block);
      static_cast<void>(files.look_through());
    };
    const std::string said = refusal_of(work);
    if (said == "nothing was refused") continue;
    EXPECT_THAT(said, HasSubstr("a.bin"));
    ++refused;
  }
  EXPECT_GT(refused, 300);
}

DatasetConfiguration named(const std::string& path, std::vector<std::string> files = {}) {
  DatasetConfiguration data;
  data.path = path;
  data.files = std::move(files);
  return data;
}

TEST(FileListTest, folders_patterns_and_lists_name_files_in_a_stated_order) {
  const ScratchFolder folder;
  for (const char* name : {"b2.bin", "b10.bin", "a.bin", "note.txt", ".hidden.bin"}) write_bytes(folder / name, "x");
  const auto names = [&](const DatasetConfiguration& data) {
    std::vector<std::string> found;
    for (const auto& file : files_of(data, ".bin")) found.push_back(file.filename());
    return found;
  };
  EXPECT_THAT(names(named(folder.path())), ElementsAre("a.bin", "b10.bin", "b2.bin"));
  EXPECT_THAT(names(named(folder / "b*.bin")), ElementsAre("b10.bin", "b2.bin"));
  EXPECT_THAT(names(named(folder.path(), {"b2.bin", "a.bin"})), ElementsAre("b2.bin", "a.bin"));
  EXPECT_THAT(names(named("", {folder / "b2.bin", folder / "a*"})), ElementsAre("b2.bin", "a.bin"));
  EXPECT_THAT(names(named(folder / "note.txt")), ElementsAre("note.txt"));
}

TEST(FileListTest, nothing_and_twice_are_refused) {
  const ScratchFolder folder;
  write_bytes(folder / "a.bin", "x");
  const auto said = [](const DatasetConfiguration& data) { return refusal_of([&] { files_of(data, ".bin"); }); };
  EXPECT_THAT(said(named(folder / "*.tok")), HasSubstr("there is no file"));
  EXPECT_THAT(said(named(folder.path(), {"a.bin", "./a*"})), HasSubstr("a.bin twice"));
  std::filesystem::create_directory(folder / "empty");
  EXPECT_THAT(said(named(folder / "empty")), HasSubstr("holds no file that ends in .bin"));
}

}  // namespace
}  // namespace onebatch
