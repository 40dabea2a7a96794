#include "trainer/checkpoint/best_checkpoint.hpp"

#include "scratch_folder.hpp"
#include "trainer/checkpoint/checkpoint_folder.hpp"
#include "trainer/io/durable_file.hpp"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <set>
#include <stdexcept>

namespace onebatch {
namespace {

namespace fs = std::filesystem;
using testing::read_bytes;
using testing::ScratchFolder;
using testing::write_bytes;

std::vector<CheckpointFile> files_of(const std::string& content) {
  return {{"model.safetensors", [=](const fs::path& file) { return write_text(file, content); }}};
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

BestMark loss_of(std::int64_t step, double value) {
  return {step, "loss", value};
}

TEST(BestCheckpointTest, the_mark_leads_to_the_checkpoint_and_says_why) {
  const ScratchFolder folder;
  write_checkpoint(folder.path(), 4, files_of("four"), {.keep = 2, .mark = loss_of(4, 0.25)});
  EXPECT_EQ(read_bytes(folder / "best/model.safetensors"), "four");
  EXPECT_EQ(marked_best(folder.path()), 4);
  const auto said = nlohmann::json::parse(read_bytes(folder / "best.json"));
  EXPECT_EQ(said.at("step"), 4);
  EXPECT_EQ(said.at("metric"), "loss");
  EXPECT_EQ(said.at("value"), 0.25);
  EXPECT_EQ(said.at("checkpoint"), "step-4");
}

TEST(BestCheckpointTest, the_best_stays_beside_the_newest_until_another_one_is_whole) {
  const ScratchFolder folder;
  write_checkpoint(folder.path(), 1, files_of("w"), {.keep = 2, .mark = loss_of(1, 0.5)});
  for (const std::int64_t step : {2, 3, 4}) write_checkpoint(folder.path(), step, files_of("w"), {.keep = 2});
  EXPECT_THAT(names_in(folder.path()),
              ::testing::ElementsAre("best", "best.json", "latest", "step-1", "step-3", "step-4"));
  const std::vector<CheckpointFile> torn = {
      {"model.safetensors", [](const fs::path&) -> Checksum { throw std::runtime_error("no space"); }}};
  EXPECT_THROW(write_checkpoint(folder.path(), 5, torn, {.keep = 2, .mark = loss_of(5, 0.4)}), std::runtime_error);
  EXPECT_EQ(marked_best(folder.path()), 1) << "what was never written is not the best";
  EXPECT_TRUE(fs::exists(folder / "step-1"));
  write_checkpoint(folder.path(), 6, files_of("w"), {.keep = 2, .mark = loss_of(6, 0.3)});
  EXPECT_THAT(names_in(folder.path()), ::testing::ElementsAre("best", "best.json", "latest", "step-4", "step-6"));
}

TEST(BestCheckpointTest, one_that_is_there_may_be_marked_later) {
  const ScratchFolder folder;
  for (const std::int64_t step : {1, 2}) write_checkpoint(folder.path(), step, files_of("w"), {.keep = 1});
  mark_best(folder.path(), loss_of(2, 0.5));
  write_checkpoint(folder.path(), 3, files_of("w"), {.keep = 1});
  mark_best(folder.path(), loss_of(3, 0.4));
  EXPECT_TRUE(fs::exists(folder / "step-2"));
  remove_all_but(folder.path(), {.keep = 1}, 3);
  EXPECT_THAT(names_in(folder.path()), ::testing::ElementsAre("best", "best.json", "latest", "step-3"));
}

TEST(BestCheckpointTest, the_mark_is_read_where_the_link_and_the_file_say_the_same) {
  const ScratchFolder folder;
  EXPECT_EQ(read_mark(folder.path()), std::nullopt);
  for (const std::int64_t step : {1, 2}) write_checkpoint(folder.path(), step, files_of("w"), {.keep = 0});
  mark_best(folder.path(), loss_of(1, 0.1));
  EXPECT_EQ(read_mark(folder.path()), loss_of(1, 0.1));
  point_link_at(folder.path(), "best", folder / "step-2");  // as one leaves it that is killed between the two
  EXPECT_EQ(read_mark(folder.path()), std::nullopt);
  mark_best(folder.path(), loss_of(2, 0.05));
  for (const char* damaged : {"", "{", "[]", R"({"step": 2})", R"({"step": "2", "metric": "loss", "value": 0.1})"}) {
    write_bytes(folder / "best.json", damaged);
    EXPECT_EQ(read_mark(folder.path()), std::nullopt) << damaged;
  }
}

TEST(BestCheckpointTest, taking_the_mark_away_takes_nothing_else) {
  const ScratchFolder folder;
  unmark_best(folder.path());
  write_checkpoint(folder.path(), 1, files_of("w"), {.keep = 1, .mark = loss_of(1, 0.5)});
  unmark_best(folder.path());
  EXPECT_THAT(names_in(folder.path()), ::testing::ElementsAre("latest", "step-1"));
  EXPECT_EQ(marked_best(folder.path()), std::nullopt);
}

TEST(BestCheckpointTest, a_folder_that_a_copy_has_made_of_the_mark_makes_way) {
  const ScratchFolder folder;
  write_checkpoint(folder.path(), 1, files_of("w"), {.keep = 1});
  fs::create_directories(folder / "best");
  EXPECT_EQ(marked_best(folder.path()), std::nullopt);
  mark_best(folder.path(), loss_of(1, 0.5));
  EXPECT_EQ(marked_best(folder.path()), 1);
  EXPECT_TRUE(fs::is_directory(folder / "best.copied"));
}

}  // namespace
}  // namespace onebatch
