#include "trainer/checkpoint/checkpoint_folder.hpp"

#include "scratch_folder.hpp"
#include "trainer/base/error.hpp"
#include "trainer/io/durable_file.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <set>
#include <stdexcept>

namespace onebatch {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::read_bytes;
using testing::ScratchFolder;
using testing::write_bytes;

std::vector<CheckpointFile> files_of(const std::string& content) {
  return {{"model.safetensors", [=](const fs::path& file) { return write_text(file, content); }},
          {"state.json", [](const fs::path& file) { return write_text(file, "{}"); }}};
}

std::string refusal(const fs::path& checkpoint) {
  try {
    check_checkpoint(checkpoint);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

// Who may not remove everything, as root may, for as long as one lives.
class AnotherUser {
 public:
  AnotherUser() : changed_(geteuid() == 0 && seteuid(65534) == 0) {}
  ~AnotherUser() { EXPECT_TRUE(!changed_ || seteuid(0) == 0); }
  AnotherUser(const AnotherUser&) = delete;
  AnotherUser& operator=(const AnotherUser&) = delete;
  [[nodiscard]] static bool may_write(const fs::path& folder) {
    return geteuid() != 0 && faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) == 0;
  }

 private:
  bool changed_;
};

TEST(CheckpointFolderTest, a_checkpoint_is_whole_and_latest_points_at_it) {
  const ScratchFolder folder;
  const fs::path written = write_checkpoint(folder.path(), 7, files_of("weights"), {.keep = 0});
  EXPECT_EQ(written.filename(), "step-7");
  EXPECT_EQ(refusal(written), "accepted");
  EXPECT_EQ(read_bytes(folder.path() / "latest" / "model.safetensors"), "weights");
}

TEST(CheckpointFolderTest, the_newest_ones_are_kept) {
  const ScratchFolder folder;
  for (const std::int64_t step : {1, 2, 10, 9}) write_checkpoint(folder.path(), step, files_of("w"), {.keep = 2});
  EXPECT_TRUE(fs::exists(folder / "step-10"));
  EXPECT_TRUE(fs::exists(folder / "step-9"));
  EXPECT_FALSE(fs::exists(folder / "step-1"));
  EXPECT_EQ(find_latest_checkpoint(folder.path()).value().step, 10);
}

TEST(CheckpointFolderTest, multiples_of_keep_every_stay_besides_the_newest) {
  const ScratchFolder folder;
  for (std::int64_t step = 2; step <= 16; step += 2)
    write_checkpoint(folder.path(), step, files_of("w"), {.keep = 2, .keep_every = 6});
  std::set<std::string> left;
  for (const auto& entry : fs::directory_iterator(folder.path())) left.insert(entry.path().filename().string());
  EXPECT_THAT(left, ::testing::ElementsAre("latest", "step-12", "step-14", "step-16", "step-6"));
  write_checkpoint(folder.path(), 18, files_of("w"), {.keep = 1});
  EXPECT_FALSE(fs::exists(folder / "step-6")) << "without it they go as the others do";
}

TEST(CheckpointFolderTest, the_same_step_is_replaced) {
  const ScratchFolder folder;
  write_checkpoint(folder.path(), 3, files_of("old"), {.keep = 0});
  write_checkpoint(folder.path(), 3, files_of("new"), {.keep = 0});
  EXPECT_EQ(read_bytes(folder.path() / "step-3" / "model.safetensors"), "new");
  EXPECT_EQ(refusal(folder / "step-3"), "accepted");
}

TEST(CheckpointFolderTest, what_made_way_for_the_same_step_and_could_not_be_removed_goes_with_the_next) {
  const ScratchFolder folder;
  write_checkpoint(folder.path(), 3, files_of("w"), {.keep = 0});
  fs::create_directories(folder.path() / ".step-3.old.partial");
  write_checkpoint(folder.path(), 4, files_of("w"), {.keep = 0});
  EXPECT_FALSE(fs::exists(folder.path() / ".step-3.old.partial"));
}

TEST(CheckpointFolderTest, an_old_one_that_cannot_be_removed_ends_nothing_and_goes_with_a_later_save) {
  const AnotherUser user;
  if (!AnotherUser::may_write(fs::temp_directory_path())) GTEST_SKIP() << "no user here whose rights end anywhere";
  const ScratchFolder folder;
  constexpr auto k_read_alone = fs::perms::owner_read | fs::perms::owner_exec;
  write_checkpoint(folder.path(), 1, files_of("old"), {.keep = 1});
  fs::permissions(folder / "step-1", k_read_alone);
  EXPECT_NO_THROW(write_checkpoint(folder.path(), 2, files_of("new"), {.keep = 1}));
  EXPECT_TRUE(fs::exists(folder / "step-1"));
  EXPECT_EQ(find_latest_checkpoint(folder.path()).value().step, 2);
  fs::permissions(folder / "step-1", fs::perms::owner_all);
  fs::permissions(folder / "step-2", k_read_alone);
  EXPECT_NO_THROW(write_checkpoint(folder.path(), 2, files_of("in its place"), {.keep = 1}));
  EXPECT_FALSE(fs::exists(folder / "step-1"));
  EXPECT_TRUE(fs::exists(folder / ".step-2.old.partial"));
  EXPECT_NO_THROW(write_checkpoint(folder.path(), 3, files_of("newer"), {.keep = 1}));
  fs::permissions(folder / ".step-2.old.partial", fs::perms::owner_all);
  write_checkpoint(folder.path(), 4, files_of("newest"), {.keep = 1});
  EXPECT_FALSE(fs::exists(folder / ".step-2.old.partial"));
}

TEST(CheckpointFolderTest, a_latest_that_was_left_behind_is_mended) {
  const ScratchFolder folder;
  write_checkpoint(folder.path(), 1, files_of("first"), {.keep = 0});
  write_checkpoint(folder.path(), 2, files_of("second"), {.keep = 0});
  fs::remove(folder / "latest");
  fs::create_directory_symlink("step-1", folder / "latest");  // a run that was killed between the two
  EXPECT_THAT(make_newest(folder.path(), folder / "step-2"), ::testing::IsEmpty());
  EXPECT_EQ(fs::read_symlink(folder / "latest"), "step-2");
}

TEST(CheckpointFolderTest, one_that_is_gone_is_named) {
  const ScratchFolder folder;
  for (const std::int64_t step : {1, 2}) write_checkpoint(folder.path(), step, files_of("w"), {.keep = 0});
  fs::remove_all(folder / "step-2");
  const auto without = find_latest_checkpoint(folder.path()).value();
  EXPECT_EQ(without.step, 1);
  ASSERT_EQ(without.refused.size(), 1);
  EXPECT_THAT(without.refused[0], HasSubstr("latest names, is not there"));
  write_bytes(folder.path() / "step-2", "a file");
  EXPECT_THAT(find_latest_checkpoint(folder.path()).value().refused,
              ::testing::ElementsAre(HasSubstr("step-2 is no folder")));
}

TEST(CheckpointFolderTest, where_none_is_whole_each_is_named) {
  const ScratchFolder folder;
  for (const char* name : {"step-1", "step-2"}) fs::create_directories(folder.path() / name);
  try {
    find_latest_checkpoint(folder.path());
    FAIL();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("step-1 has no manifest.json"));
    EXPECT_THAT(error.what(), HasSubstr("step-2 has no manifest.json"));
  }
}

TEST(CheckpointFolderTest, what_is_added_leaves_the_same_step_and_what_another_process_writes) {
  const ScratchFolder folder;
  const auto nothing = [] {};
  const PartialCheckpoint others(folder.path(), 4, files_of("half"));
  EXPECT_EQ(add_checkpoint(folder.path(), 4, files_of("added"), {.keep = 0}, "me", nothing), Added::now);
  EXPECT_EQ(read_bytes(folder.path() / ".step-4.partial" / "model.safetensors"), "half");
  EXPECT_EQ(add_checkpoint(folder.path(), 4, files_of("again"), {.keep = 0}, "me", nothing), Added::was_there);
  EXPECT_EQ(add_checkpoint(folder.path(), 3, files_of("older"), {.keep = 0}, "me", nothing), Added::was_there);
  EXPECT_EQ(read_bytes(folder.path() / "latest" / "model.safetensors"), "added");
  EXPECT_EQ(refusal(folder / "step-4"), "accepted");
  EXPECT_FALSE(fs::exists(folder / ".step-4.me.partial"));
}

TEST(CheckpointFolderTest, one_that_is_published_after_a_later_one_was_added_is_not_the_newest) {
  const ScratchFolder folder;
  PartialCheckpoint earlier(folder.path(), 4, files_of("earlier"));
  EXPECT_EQ(add_checkpoint(folder.path(), 5, files_of("added"), {.keep = 1}, "me", [] {}), Added::now);
  earlier.publish({.keep = 1});
  EXPECT_EQ(read_bytes(folder.path() / "step-4" / "model.safetensors"), "earlier");
  EXPECT_EQ(fs::read_symlink(folder / "latest"), "step-5");
}

TEST(CheckpointFolderTest, one_of_a_new_course_in_a_used_folder_is_the_newest) {
  const ScratchFolder folder;
  write_checkpoint(folder.path(), 100, files_of("left"), {.keep = 0});
  write_checkpoint(folder.path(), 4, files_of("new"), {.keep = 0});
  EXPECT_EQ(fs::read_symlink(folder / "latest"), "step-4");
}

TEST(CheckpointFolderTest, of_two_that_add_at_once_one_does) {
  const ScratchFolder folder;
  const auto second = [&] {
    EXPECT_EQ(add_checkpoint(folder.path(), 4, files_of("second"), {.keep = 0}, "two", [] {}), Added::by_another);
  };
  EXPECT_EQ(add_checkpoint(folder.path(), 4, files_of("first"), {.keep = 0}, "one", second), Added::now);
  EXPECT_EQ(read_bytes(folder.path() / "step-4" / "model.safetensors"), "first");
}

TEST(CheckpointFolderTest, what_may_not_be_published_is_not_there) {
  const ScratchFolder folder;
  write_checkpoint(folder.path(), 3, files_of("old"), {.keep = 0});
  EXPECT_THROW(
      add_checkpoint(folder.path(), 4, files_of("new"), {.keep = 1}, "me", [] { throw std::runtime_error("taken"); }),
      std::runtime_error);
  EXPECT_EQ(find_latest_checkpoint(folder.path()).value().step, 3);
  EXPECT_FALSE(fs::exists(folder / ".step-4.me.partial"));
}

TEST(CheckpointFolderTest, a_failure_leaves_the_older_ones_and_no_partial) {
  const ScratchFolder folder;
  write_checkpoint(folder.path(), 1, files_of("old"), {.keep = 1});
  auto files = files_of("new");
  files[1].write = [](const fs::path&) -> Checksum { throw std::runtime_error("the disk is full"); };
  EXPECT_THROW(write_checkpoint(folder.path(), 2, files, {.keep = 1}), std::runtime_error);
  EXPECT_EQ(find_latest_checkpoint(folder.path()).value().step, 1);
  int entries = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder.path())) ++entries;
  EXPECT_EQ(entries, 2) << "step-1 and latest";
}

TEST(CheckpointFolderTest, what_the_disk_has_altered_never_becomes_a_checkpoint) {
  const ScratchFolder folder;
  write_checkpoint(folder.path(), 1, files_of("old"), {.keep = 1});
  auto files = files_of("0123456789");
  files[0].write = [](const fs::path& file) {
    const Checksum checksum = write_text(file, "0123456789");
    write_bytes(file, "0123456798");
    return checksum;
  };
  std::string said;
  try {
    write_checkpoint(folder.path(), 2, files, {.keep = 1});
  } catch (const UserError& error) {
    said = "the user's mistake";
  } catch (const std::runtime_error& error) {
    said = error.what();
  }
  EXPECT_THAT(said, HasSubstr("model.safetensors is not what was written"));
  EXPECT_EQ(find_latest_checkpoint(folder.path()).value().step, 1);
  EXPECT_FALSE(fs::exists(folder / ".step-2.partial"));
}

TEST(CheckpointFolderTest, every_altered_byte_is_found) {
  const ScratchFolder folder;
  const fs::path checkpoint = write_checkpoint(folder.path(), 1, files_of("0123456789"), {.keep = 0});
  const std::string whole = read_bytes(checkpoint / "model.safetensors");
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string altered = whole;
    altered[i] = static_cast<char>(altered[i] ^ 1);
    write_bytes(checkpoint / "model.safetensors", altered);
    EXPECT_THAT(refusal(checkpoint), HasSubstr("altered")) << i;
  }
  write_bytes(checkpoint / "model.safetensors", whole.substr(0, 5));
  EXPECT_THAT(refusal(checkpoint), HasSubstr("torn"));
  fs::remove(checkpoint / "model.safetensors");
  EXPECT_THAT(refusal(checkpoint), HasSubstr("missing"));
  fs::remove(checkpoint / "manifest.json");
  EXPECT_THAT(refusal(checkpoint), HasSubstr("manifest.json"));
}

TEST(CheckpointFolderTest, a_torn_newest_gives_way_to_the_one_before) {
  const ScratchFolder folder;
  write_checkpoint(folder.path(), 1, files_of("one"), {.keep = 0});
  const fs::path newest = write_checkpoint(folder.path(), 2, files_of("two"), {.keep = 0});
  write_bytes(newest / "model.safetensors", "t");
  const FoundCheckpoint found = find_latest_checkpoint(folder.path()).value();
  EXPECT_EQ(found.step, 1);
  ASSERT_EQ(found.refused.size(), 1U);
  EXPECT_THAT(found.refused[0], HasSubstr("step-2"));
}

TEST(CheckpointFolderTest, none_whole_is_an_error_and_none_at_all_is_not) {
  const ScratchFolder folder;
  EXPECT_FALSE(find_latest_checkpoint(folder.path()).has_value());
  EXPECT_FALSE(find_latest_checkpoint(folder / "nowhere").has_value());
  fs::create_directories(folder.path() / ".step-5.partial");
  EXPECT_FALSE(find_latest_checkpoint(folder.path()).has_value()) << "what a dead run left is no checkpoint";
  fs::create_directories(folder.path() / "step-5");
  EXPECT_THROW(find_latest_checkpoint(folder.path()), UserError);
}

TEST(CheckpointFolderTest, a_manifest_cannot_point_outside) {
  const ScratchFolder folder;
  const fs::path checkpoint = write_checkpoint(folder.path(), 1, files_of("one"), {.keep = 0});
  write_bytes(checkpoint / "manifest.json", R"({"files": {"../secret": {"bytes": 1, "checksum": "0"}}})");
  EXPECT_THAT(refusal(checkpoint), HasSubstr("outside"));
}

TEST(CheckpointFolderTest, a_copied_latest_makes_way) {
  const ScratchFolder folder;
  write_checkpoint(folder.path(), 1, files_of("first"), {.keep = 0});
  fs::remove(folder / "latest");
  fs::copy(folder / "step-1", folder / "latest");
  write_checkpoint(folder.path(), 2, files_of("second"), {.keep = 0});
  EXPECT_EQ(read_bytes(folder.path() / "latest" / "model.safetensors"), "second");
  EXPECT_EQ(read_bytes(folder.path() / "latest.copied" / "model.safetensors"), "first");
}

TEST(CheckpointFolderTest, links_to_themselves_are_no_checkpoints) {
  const ScratchFolder folder;
  write_checkpoint(folder.path(), 1, files_of("w"), {.keep = 0});
  fs::create_symlink("step-9", folder / "step-9");
  fs::remove(folder / "latest");
  fs::create_symlink("latest", folder / "latest");
  EXPECT_EQ(find_latest_checkpoint(folder.path()).value().step, 1);
  write_checkpoint(folder.path(), 2, files_of("w"), {.keep = 0});
  EXPECT_EQ(fs::read_symlink(folder / "latest"), "step-2");
}

TEST(CheckpointFolderTest, a_pipe_in_the_place_of_a_file_does_not_hang) {
  const ScratchFolder folder;
  const fs::path written = write_checkpoint(folder.path(), 1, files_of("w"), {.keep = 0});
  for (const char* name : {"model.safetensors", "manifest.json"}) {
    fs::remove(written / name);
    ASSERT_EQ(mkfifo((written / name).c_str(), 0600), 0);
    EXPECT_THAT(refusal(written), HasSubstr(name));
  }
}

TEST(CheckpointFolderTest, a_file_that_the_manifest_does_not_name_is_refused) {
  const ScratchFolder folder;
  const fs::path written = write_checkpoint(folder.path(), 1, files_of("w"), {.keep = 0});
  write_bytes(written / "rank_buffers.safetensors", "forged");
  EXPECT_THAT(refusal(written), HasSubstr("does not name rank_buffers.safetensors"));
}

}  // namespace
}  // namespace onebatch
