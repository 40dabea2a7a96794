#include "trainer/events/tensorboard_writer.hpp"

#include "scratch_folder.hpp"
#include "trainer/io/crc32c.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace onebatch {
namespace {

using testing::read_bytes;
using testing::ScratchFolder;
using testing::write_bytes;

std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

TEST(TensorboardWriterTest, checksums_are_those_of_rfc_3720) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  EXPECT_EQ(crc32c(""), 0U);
}

// The first record of every event file of TensorFlow with the time 1.0, byte by byte: made by TensorBoard's own writer.
TEST(TensorboardWriterTest, a_file_begins_as_tensorboards_own) {
  const ScratchFolder folder;
  const TensorboardFile file(folder / "tb", 1.0, 0);
  const auto files = files_in(folder / "tb");
  ASSERT_EQ(files.size(), 1U);
  const std::string bytes = read_bytes(files.front());
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x1a\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(bytes.substr(12, 26), std::string("\x09\0\0\0\0\0\0\xf0\x3f\x10\0\x1a\x0d", 13) + "brain.Event:2");
}

TEST(TensorboardWriterTest, a_later_file_is_read_later) {
  const ScratchFolder folder;
  std::filesystem::create_directory(folder / "tb");
  write_bytes(folder / "tb" / "events.out.tfevents.0000000050.zzz.1", "");
  write_bytes(folder / "tb" / "notes.txt", "");
  const TensorboardFile first(folder / "tb", 20.0, 3);  // a clock that was set back
  const TensorboardFile second(folder / "tb", 20.0, 3);
  const auto files = files_in(folder / "tb");
  ASSERT_EQ(files.size(), 4U);
  EXPECT_EQ(files[0].filename(), "events.out.tfevents.0000000050.zzz.1");
  EXPECT_TRUE(files[1].filename().string().starts_with("events.out.tfevents.0000000051."));
  EXPECT_TRUE(files[2].filename().string().starts_with("events.out.tfevents.0000000052."));
}

TEST(TensorboardWriterTest, many_ranks_are_summed_up) {
  StepRecord record;
  record.compute_seconds.resize(k_most_ranks_shown, 1.0);
  const auto has = [](const std::vector<Scalar>& scalars, const std::string& tag) {
    return std::ranges::any_of(scalars, [&](const Scalar& scalar) { return scalar.tag == tag; });
  };
  EXPECT_TRUE(has(scalars_of(record), "compute_seconds/rank_15"));
  record.compute_seconds = {5.0, 1.0, 3.0};
  record.compute_seconds.resize(k_most_ranks_shown + 1, 4.0);
  const auto scalars = scalars_of(record);
  EXPECT_FALSE(has(scalars, "compute_seconds/rank_0"));
  for (const auto& [tag, value] : {Scalar{"least", 1.0}, Scalar{"median", 4.0}, Scalar{"most", 5.0}}) {
    const auto found = std::ranges::find(scalars, "compute_seconds/" + tag, &Scalar::tag);
    ASSERT_NE(found, scalars.end()) << tag;
    EXPECT_EQ(found->value, value) << tag;
  }
}

TEST(TensorboardWriterTest, a_place_that_cannot_be_written_is_named) {
  const ScratchFolder folder;
  write_bytes(folder / "tb", "a file");
  EXPECT_THROW(TensorboardFile(folder / "tb", 1.0, 0), std::system_error);
}

}  // namespace
}  // namespace onebatch
