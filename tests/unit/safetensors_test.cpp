#include "trainer/io/safetensors.hpp"

#include "scratch_folder.hpp"
#include "trainer/base/error.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <random>
#include <system_error>

namespace onebatch {
namespace {

using ::testing::HasSubstr;
using testing::ScratchFolder;
using testing::write_bytes;

std::string with_header(const std::string& header, const std::string& data) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return bytes + header + data;
}

std::string refusal(const std::filesystem::path& file) {
  try {
    read_safetensors_header(file);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

const std::string k_good =
    R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})";

TEST(SafetensorsTest, what_is_written_is_read) {
  const ScratchFolder folder;
  const std::vector<float> values = {1.5F, -2.0F};
  const std::vector<SafetensorsView> views = {{"layer.weight", "F32", {1, 2}, std::as_bytes(std::span(values))},
                                              {"empty", "I64", {0, 4}, {}}};
  write_safetensors(folder / "t", views, {{"format", "pt"}});
  const SafetensorsHeader header = read_safetensors_header(folder / "t");
  ASSERT_EQ(header.entries.size(), 2U);
  EXPECT_EQ(header.metadata.at("format"), "pt");
  EXPECT_EQ(header.data_begin % 8, 0U);
  for (const auto& entry : header.entries) {
    const auto bytes = read_safetensors_entry(folder / "t", header, entry);
    if (entry.name == "empty") {
      EXPECT_TRUE(bytes.empty());
    } else {
      EXPECT_EQ(std::memcmp(bytes.data(), values.data(), 8), 0);
    }
  }
}

TEST(SafetensorsTest, no_tensor_at_all_is_a_file) {
  const ScratchFolder folder;
  write_safetensors(folder / "t", {}, {});
  EXPECT_TRUE(read_safetensors_header(folder / "t").entries.empty());
}

TEST(SafetensorsTest, every_truncation_and_addition_is_refused) {
  const ScratchFolder folder;
  const std::string whole = with_header(k_good, "01234567abc");
  write_bytes(folder / "t", whole);
  ASSERT_EQ(refusal(folder / "t"), "accepted");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    write_bytes(folder / "t", whole.substr(0, length));
    EXPECT_NE(refusal(folder / "t"), "accepted") << length;
  }
  write_bytes(folder / "t", whole + "x");
  EXPECT_THAT(refusal(folder / "t"), HasSubstr("its tensors need 11 bytes"));
}

TEST(SafetensorsTest, mistakes_name_file_and_tensor) {
  const ScratchFolder folder;
  const auto said = [&](const std::string& header) {
    write_bytes(folder / "t", with_header(header, "01234567"));
    return refusal(folder / "t");
  };
  EXPECT_THAT(said(R"({"a":{"dtype":"F99","shape":[2],"data_offsets":[0,8]}})"), HasSubstr("tensor a.dtype"));
  EXPECT_THAT(said(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})"), HasSubstr("12 bytes"));
  EXPECT_THAT(said(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,8]}})"), HasSubstr("shape"));
  EXPECT_THAT(said(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})"),
              HasSubstr("more elements"));
  EXPECT_THAT(said(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})"), HasSubstr("data_offsets"));
  EXPECT_THAT(said(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})"), HasSubstr("begins at byte 4"));
  EXPECT_THAT(
      said(
          R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})"),
      HasSubstr("begins"));
  EXPECT_THAT(
      said(
          R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})"),
      HasSubstr("twice"));
  EXPECT_THAT(said("[1]"), HasSubstr("no JSON object"));
  EXPECT_THAT(said("{"), HasSubstr("not JSON"));
  write_bytes(folder / "t", std::string(8, '\xff') + "{}");
  EXPECT_THAT(refusal(folder / "t"), HasSubstr("header"));
  EXPECT_THAT(refusal(folder / "nowhere"), HasSubstr("nowhere"));
}

TEST(SafetensorsTest, every_type_of_the_format_has_its_size) {
  const ScratchFolder folder;
  struct Type {
    const char* name;
    int bits;
  };
  const std::vector<Type> types = {
      {"F64", 64},        {"F32", 32},    {"F16", 16},    {"BF16", 16},   {"I64", 64},    {"I32", 32},
      {"I16", 16},        {"I8", 8},      {"U64", 64},    {"U32", 32},    {"U16", 16},    {"U8", 8},
      {"BOOL", 8},        {"C64", 64},    {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
      {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4}};
  for (const auto& [name, bits] : types) {
    const int bytes = 4 * bits / 8;
    const auto said = [&, type = name](int end) {
      const std::string header =
          fmt::format(R"({{"a":{{"dtype":"{}","shape":[4],"data_offsets":[0,{}]}}}})", type, end);
      write_bytes(folder / "t", with_header(header, std::string(static_cast<std::size_t>(end), 'x')));
      return refusal(folder / "t");
    };
    EXPECT_EQ(said(bytes), "accepted") << name;
    EXPECT_THAT(said(bytes + 1), HasSubstr(fmt::format("the {} bytes", bytes))) << name;
  }
  write_bytes(folder / "t", with_header(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", "xx"));
  EXPECT_THAT(refusal(folder / "t"), HasSubstr("within a byte"));
}

TEST(SafetensorsTest, random_damage_never_crashes) {
  const ScratchFolder folder;
  const std::string whole = with_header(k_good, "01234567abc");
  std::mt19937 generator(5);
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = whole;
    for (int flips = 0; flips < 3; ++flips) bytes[generator() % bytes.size()] = static_cast<char>(generator() % 256);
    write_bytes(folder / "t", bytes);
    try {
      const SafetensorsHeader header = read_safetensors_header(folder / "t");
      for (const auto& entry : header.entries)
        EXPECT_LE(read_safetensors_entry(folder / "t", header, entry).size(), 11U);
    } catch (const UserError&) {
    }
  }
}

// A quota stands in for a full disk: both fail in write().
TEST(SafetensorsTest, a_full_disk_names_the_file_and_leaves_none) {
  const ScratchFolder folder;
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 4096;
  setrlimit(RLIMIT_FSIZE, &small);
  const std::vector<std::byte> large(100000);
  std::string said;
  try {
    const std::vector<SafetensorsView> views = {{"a", "U8", {100000}, large}};
    write_safetensors(folder / "full", views, {});
  } catch (const std::system_error& error) {
    said = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_THAT(said, HasSubstr("full"));
  EXPECT_FALSE(std::filesystem::exists(folder / "full"));
}

}  // namespace
}  // namespace onebatch
