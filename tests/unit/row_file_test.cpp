#include "trainer/io/row_file.hpp"

#include "scratch_folder.hpp"
#include "trainer/io/safetensors.hpp"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <system_error>

namespace onebatch {
namespace {

using ::testing::ElementsAre;
using testing::ScratchFolder;

template <typename T>
std::vector<T> values_of(const std::filesystem::path& file, const std::string& name) {
  const SafetensorsHeader header = read_safetensors_header(file);
  for (const SafetensorsEntry& entry : header.entries) {
    if (entry.name != name) continue;
    EXPECT_EQ((header.data_begin + entry.begin) % sizeof(T), 0U);
    const auto bytes = read_safetensors_entry(file, header, entry);
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  return {};
}

template <typename T>
void write(RowFile& file, std::size_t tensor, std::int64_t first_row, const std::vector<T>& values) {
  file.write(tensor, first_row, std::as_bytes(std::span(values)));
}

TEST(RowFileTest, rows_written_in_any_order_are_a_safetensors_file) {
  const ScratchFolder folder;
  const auto file = folder / "out.safetensors";
  {
    RowFile out(file, {{"half", "I16", {3}, 2}, {"wide", "F64", {3, 2}, 8}, {"none", "F32", {3, 0}, 4}},
                {{"format", "pt"}});
    write<double>(out, 1, 2, {5.0, 6.0});
    write<std::int16_t>(out, 0, 0, {7, 8, 9});
    write<double>(out, 1, 0, {1.0, 2.0, 3.0, 4.0});
    write<float>(out, 2, 0, {});
    EXPECT_FALSE(std::filesystem::exists(file));
    out.commit();
  }
  EXPECT_THAT(values_of<std::int16_t>(file, "half"), ElementsAre(7, 8, 9));
  EXPECT_THAT(values_of<double>(file, "wide"), ElementsAre(1.0, 2.0, 3.0, 4.0, 5.0, 6.0));
  EXPECT_THAT(read_safetensors_header(file).entries.back().shape, ElementsAre(3));  // the widest first
  EXPECT_EQ(read_safetensors_header(file).metadata.at("format"), "pt");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(RowFileTest, what_is_not_committed_leaves_all_as_it_was) {
  const ScratchFolder folder;
  const auto file = folder / "out.safetensors";
  testing::write_bytes(file, "before");
  { RowFile out(file, {{"x", "F32", {2}, 4}}, {}); }
  EXPECT_EQ(std::filesystem::file_size(file), 6U);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(RowFileTest, too_little_room_is_told_before_anything_is_computed) {
  const ScratchFolder folder;
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{1 << 16, before.rlim_max};
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  EXPECT_THROW(RowFile(folder / "out.safetensors", {{"x", "F64", {1 << 20}, 8}}, {}), std::system_error);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_THROW(RowFile(folder / "no/folder/out.safetensors", {{"x", "F64", {1}, 8}}, {}), std::system_error);
}

}  // namespace
}  // namespace onebatch
