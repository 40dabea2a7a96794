#include "trainer/checkpoint/checkpoint_folder.hpp"

#include "scratch_folder.hpp"
#include "trainer/io/durable_file.hpp"

#include <gmock/gmock.h>

namespace onebatch {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::read_bytes;
using testing::ScratchFolder;

std::vector<CheckpointFile> files_of(const std::string& content) {
  return {{"model.safetensors", [=](const fs::path& file) { return write_text(file, content); }}};
}

TEST(CheckpointPlacesTest, a_run_that_goes_back_sets_later_ones_aside) {
  const ScratchFolder folder;
  for (const std::int64_t step : {1, 2, 3}) write_checkpoint(folder.path(), step, files_of("left"), {.keep = 0});
  EXPECT_THAT(make_newest(folder.path(), folder / "step-1"), ElementsAre("step-2.aside", "step-3.aside"));
  EXPECT_EQ(find_latest_checkpoint(folder.path()).value().step, 1);
  EXPECT_EQ(fs::read_symlink(folder / "latest"), "step-1");
  write_checkpoint(folder.path(), 2, files_of("new"), {.keep = 1});
  EXPECT_THAT(make_newest(folder.path(), folder / "step-2"), IsEmpty());
  // Back to what was left, which is one of the run's again.
  EXPECT_THAT(make_newest(folder.path(), folder / "step-2.aside"), ElementsAre("step-2.aside-2"));
  EXPECT_EQ(find_latest_checkpoint(folder.path()).value().step, 2);
  EXPECT_EQ(read_bytes(folder.path() / "step-2" / "model.safetensors"), "left");
  EXPECT_TRUE(fs::exists(folder / "step-3.aside"));
}

TEST(CheckpointPlacesTest, a_copy_that_is_gone_on_from_gets_a_place_among_the_others) {
  const ScratchFolder folder;
  const fs::path checkpoints = folder / "checkpoints";
  for (const std::int64_t step : {1, 2, 3}) write_checkpoint(checkpoints, step, files_of("left"), {.keep = 0});
  fs::copy(checkpoints / "step-2", folder / "good");
  EXPECT_EQ(placed_among(checkpoints, checkpoints / "step-2", 2), checkpoints / "step-2");
  EXPECT_EQ(placed_among(checkpoints, folder / "good", 2), checkpoints / "step-2") << "it is the same";
  fs::remove_all(checkpoints / "step-2");
  EXPECT_THAT(make_newest(checkpoints, placed_among(checkpoints, folder / "good", 2)), ElementsAre("step-3.aside"));
  EXPECT_EQ(fs::read_symlink(checkpoints / "latest"), "step-2");
  EXPECT_EQ(read_bytes(checkpoints / "step-2" / "model.safetensors"), "left");
  EXPECT_NO_THROW(check_checkpoint(checkpoints / "step-2"));
  EXPECT_NO_THROW(check_checkpoint(folder / "good")) << "nobody takes it away";
  write_checkpoint(checkpoints, 2, files_of("another course"), {.keep = 0});
  EXPECT_THAT(make_newest(checkpoints, placed_among(checkpoints, folder / "good", 2)), ElementsAre("step-2.aside-2"));
  EXPECT_EQ(read_bytes(checkpoints / "step-2" / "model.safetensors"), "left");
}

TEST(CheckpointPlacesTest, a_link_leads_to_its_place) {
  const ScratchFolder folder;
  const fs::path checkpoints = folder / "checkpoints";
  for (const std::int64_t step : {1, 2}) write_checkpoint(checkpoints, step, files_of("w"), {.keep = 0});
  fs::create_directory_symlink("checkpoints/step-1", folder / "start");
  EXPECT_EQ(placed_among(checkpoints, folder / "start", 1), folder / "start");
  EXPECT_THAT(make_newest(checkpoints, folder / "start"), ElementsAre("step-2.aside"));
  fs::rename(checkpoints / "step-1", folder / "step-1");
  fs::create_directory_symlink("../step-1", checkpoints / "step-1");  // where there is more room
  EXPECT_EQ(placed_among(checkpoints, checkpoints / "step-1", 1), checkpoints / "step-1");
  EXPECT_TRUE(fs::is_symlink(fs::symlink_status(checkpoints / "step-1")));
}

TEST(CheckpointPlacesTest, a_checkpoint_of_another_run_moves_nothing) {
  const ScratchFolder folder;
  write_checkpoint(folder / "own", 2, files_of("own"), {.keep = 0});
  write_checkpoint(folder / "other", 1, files_of("other"), {.keep = 0});
  EXPECT_THAT(make_newest(folder / "own", folder / "other/step-1"), IsEmpty());
  EXPECT_EQ(find_latest_checkpoint(folder / "own").value().step, 2);
}

}  // namespace
}  // namespace onebatch
