#include "trainer/models/plugin_file.hpp"

#include "tests/unit/scratch_folder.hpp"
#include "trainer/base/error.hpp"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace onebatch {
namespace {

using ::testing::HasSubstr;
using testing::ScratchFolder;
using testing::write_bytes;

constexpr PluginStamp k_ours = make_plugin_stamp("2.11.0");

std::string bytes_of(const PluginStamp& stamp) {
  return {reinterpret_cast<const char*>(&stamp), sizeof(stamp)};
}

template <std::size_t N>
void put(std::array<char, N>& field, const std::string& text) {
  field.fill(0);
  std::memcpy(field.data(), text.data(), std::min(N, text.size()));
}

TEST(PluginFileTest, a_stamp_is_found_wherever_it_lies) {
  const std::string stamp = bytes_of(k_ours);
  for (const std::string& before : {std::string(),
                                    std::string("\x7f"
                                                "ELF"),
                                    std::string(PluginStampMarks::k_begin), std::string(4097, '\0')}) {
    const auto found = find_plugin_stamp(before + stamp + "behind");
    ASSERT_TRUE(found);
    EXPECT_EQ(bytes_of(*found), stamp);
  }
}

TEST(PluginFileTest, what_is_cut_or_not_ended_is_none) {
  const std::string stamp = bytes_of(k_ours);
  for (std::size_t length = 0; length < stamp.size(); ++length)
    EXPECT_FALSE(find_plugin_stamp(stamp.substr(0, length)));
  PluginStamp endless = k_ours;
  endless.onebatch.fill('9');
  EXPECT_FALSE(find_plugin_stamp(bytes_of(endless)));
  EXPECT_TRUE(find_plugin_stamp(bytes_of(endless) + stamp)) << "the next one is whole";
}

TEST(PluginFileTest, each_difference_is_named_with_what_to_do) {
  EXPECT_EQ(why_not_this_program(k_ours, k_ours), "");
  PluginStamp other = k_ours;
  put(other.onebatch, "0.0.9");
  EXPECT_THAT(why_not_this_program(other, k_ours), HasSubstr("built for onebatch 0.0.9 (plugin interface 1)"));
  other = k_ours;
  put(other.interface, "0");
  EXPECT_THAT(why_not_this_program(other, k_ours), HasSubstr("(plugin interface 0)"));
  EXPECT_THAT(why_not_this_program(make_plugin_stamp("2.10.0"), k_ours),
              HasSubstr("built with LibTorch 2.10.0, and this onebatch with 2.11.0: build it anew"));
  other = k_ours;
  put(other.standard_library, "libc++\x1b[2J");
  EXPECT_THAT(why_not_this_program(other, k_ours), HasSubstr("built with libc++\\x1b[2J, and this onebatch with "));
}

std::string words_of(const std::string& file) {
  try {
    check_plugin_file(file, "model.path", k_ours);
  } catch (const UserError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(PluginFileTest, a_shared_object_without_a_stamp_is_refused_and_what_is_none_is_left_to_the_loader) {
  const ScratchFolder folder;
  EXPECT_THAT(words_of(folder / "missing.so"), HasSubstr("model.path is no file"));
  EXPECT_THAT(words_of(folder.path()), HasSubstr("is no file"));
  write_bytes(folder / "text.so", "not a shared object");
  EXPECT_EQ(words_of(folder / "text.so"), "nothing was thrown");
  write_bytes(folder / "other.so",
              "\x7f"
              "ELF and more");
  EXPECT_THAT(words_of(folder / "other.so"), HasSubstr("is no plugin, and was not loaded"));
  write_bytes(folder / "good.so",
              "\x7f"
              "ELF" +
                  bytes_of(k_ours));
  EXPECT_EQ(words_of(folder / "good.so"), "nothing was thrown");
  write_bytes(folder / "old.so",
              "\x7f"
              "ELF" +
                  bytes_of(make_plugin_stamp("1.13.1")));
  EXPECT_THAT(words_of(folder / "old.so"), HasSubstr("model.path was built with LibTorch 1.13.1"));
}

TEST(PluginFileTest, a_file_that_ends_before_its_headers_say_is_refused) {
  const ScratchFolder folder;
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_phoff = sizeof(header);
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 1;
  const auto written = [&](const Elf64_Phdr& segment) {
    std::string bytes(sizeof(header) + sizeof(segment), '\0');
    std::memcpy(bytes.data(), &header, sizeof(header));
    std::memcpy(bytes.data() + sizeof(header), &segment, sizeof(segment));
    return bytes + bytes_of(k_ours);
  };
  Elf64_Phdr segment{};
  segment.p_offset = 64;
  const std::string whole = written(segment);
  segment.p_filesz = whole.size() - 64;
  write_bytes(folder / "whole.so", written(segment));
  EXPECT_EQ(words_of(folder / "whole.so"), "nothing was thrown");
  segment.p_filesz += 1;
  write_bytes(folder / "cut.so", written(segment));
  EXPECT_THAT(words_of(folder / "cut.so"), HasSubstr("ends before its headers say"));
  segment.p_offset = UINT64_MAX;
  write_bytes(folder / "far.so", written(segment));
  EXPECT_THAT(words_of(folder / "far.so"), HasSubstr("ends before its headers say"));
  write_bytes(folder / "headers.so", whole.substr(0, sizeof(header) + 8));
  EXPECT_THAT(words_of(folder / "headers.so"), HasSubstr("ends before its headers say"));
}

}  // namespace
}  // namespace onebatch
