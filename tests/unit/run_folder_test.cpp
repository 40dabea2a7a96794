#include "launch/run_folder.hpp"

#include "scratch_folder.hpp"
#include "trainer/base/error.hpp"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <set>
#include <thread>

namespace onebatch::launch {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::read_bytes;
using testing::ScratchFolder;
using ::testing::StartsWith;
using testing::write_bytes;
namespace fs = std::filesystem;

LoadedConfig config_in(const fs::path& folder, const std::string& resume,
                       const std::vector<std::string>& assignments = {}) {
  auto all = assignments;
  all.push_back("run.output_dir=" + folder.string());
  all.push_back("checkpoint.resume=" + resume);
  return load_config("[batch]\nglobal_batch_size = 8\n", "x.toml", all);
}

RunFolder claim(const ScratchFolder& scratch, const std::string& resume,
                const std::vector<std::string>& assignments = {}) {
  return RunFolder::claim(config_in(scratch.path(), resume, assignments), "x");
}

// A run that has come so far.
void leave_run(const ScratchFolder& scratch, FolderState state, const std::vector<std::string>& assignments = {}) {
  const RunFolder folder = claim(scratch, "never", assignments);
  folder.begin();
  write_bytes(folder.path() / "profile.json", "{}");
  if (state != FolderState::begun) fs::create_directories(folder.path() / "checkpoints" / "step-3");
  if (state == FolderState::complete) folder.complete("{}\n");
  ASSERT_EQ(state_of(folder.path()), state);
}

TEST(RunFolderTest, every_state_is_told) {
  const ScratchFolder scratch;
  EXPECT_EQ(state_of(scratch / "none"), FolderState::absent);
  fs::create_directory(scratch / "run");
  EXPECT_EQ(state_of(scratch / "run"), FolderState::unused);
  write_bytes(scratch / "run/config.toml.partial", "[ru");
  write_bytes(scratch / "run/run.lock", "");
  EXPECT_EQ(state_of(scratch / "run"), FolderState::unused);
  write_bytes(scratch / "run/config.toml", "");
  EXPECT_EQ(state_of(scratch / "run"), FolderState::unused) << "what a killed start has left";
  fs::remove(scratch / "run/config.toml");
  write_bytes(scratch / "run/incident-20261123T205021.204Z-rank0.txt", "stopped while it opened its data");
  EXPECT_EQ(state_of(scratch / "run"), FolderState::unused) << "what a start has left that failed before it was a run";
  write_bytes(scratch / "run/thesis.tex", "years of work");
  EXPECT_EQ(state_of(scratch / "run"), FolderState::foreign);
  EXPECT_EQ(state_of(scratch / "run/thesis.tex"), FolderState::foreign);
  write_bytes(scratch / "run/config.toml", "");
  EXPECT_EQ(state_of(scratch / "run"), FolderState::begun);
  fs::create_directories(scratch / "run/checkpoints/.step-3.partial");
  EXPECT_EQ(state_of(scratch / "run"), FolderState::begun) << "half a checkpoint is none";
  fs::create_directories(scratch / "run/checkpoints/step-3");
  EXPECT_EQ(state_of(scratch / "run"), FolderState::has_checkpoints);
  write_bytes(scratch / "run/result.json", "{}");
  EXPECT_EQ(state_of(scratch / "run"), FolderState::complete);
}

TEST(RunFolderTest, a_configuration_that_a_person_wrote_there_stays) {
  const ScratchFolder scratch;
  fs::create_directory(scratch / "x");
  write_bytes(scratch / "x/config.toml", "# mine\n");
  EXPECT_EQ(state_of(scratch / "x"), FolderState::foreign);
  for (const char* resume : {"never", "auto"}) EXPECT_THROW(claim(scratch, resume), UserError) << resume;
  EXPECT_EQ(read_bytes(scratch / "x/config.toml"), "# mine\n");
  write_bytes(scratch / "x/notes.txt", "mine");
  EXPECT_EQ(claim(scratch, "never").path(), scratch / "x-2");
  EXPECT_EQ(read_bytes(scratch / "x/config.toml"), "# mine\n");
}

TEST(RunFolderTest, a_new_run_takes_the_next_free_name) {
  const ScratchFolder scratch;
  for (const auto state : {FolderState::begun, FolderState::has_checkpoints, FolderState::complete})
    leave_run(scratch, state);
  const RunFolder fourth = claim(scratch, "never");
  EXPECT_EQ(fourth.path(), scratch / "x-4");
  EXPECT_THAT(fourth.said(), HasSubstr("it is in " + (scratch / "x-4").string()));
  const RunFolder fifth = claim(scratch, "never");
  EXPECT_EQ(fifth.path(), scratch / "x-5") << "a folder that is held is not free, whatever is in it";
}

TEST(RunFolderTest, the_number_of_a_run_that_is_gone_goes_to_no_other) {
  const ScratchFolder scratch;
  leave_run(scratch, FolderState::has_checkpoints);
  leave_run(scratch, FolderState::has_checkpoints);
  fs::remove_all(scratch / "x");
  leave_run(scratch, FolderState::has_checkpoints);
  EXPECT_TRUE(fs::exists(scratch / "x-3"));
  EXPECT_EQ(claim(scratch, "auto", {"run.max_steps=9"}).path(), scratch / "x-3") << "the newest";
}

TEST(RunFolderTest, a_start_that_is_refused_leaves_nothing) {
  const ScratchFolder scratch;
  { const RunFolder folder = claim(scratch, "never"); }
  EXPECT_TRUE(fs::is_empty(scratch.path()));
  leave_run(scratch, FolderState::begun);
  EXPECT_FALSE(fs::exists(scratch / "x/run.lock"));
  { const RunFolder folder = claim(scratch, "auto", {"run.seed=2"}); }
  EXPECT_THAT(testing::read_bytes(scratch / "x/config.toml"), HasSubstr("seed = 1 "));
}

TEST(RunFolderTest, the_run_of_the_same_configuration_goes_on) {
  const ScratchFolder scratch;
  leave_run(scratch, FolderState::has_checkpoints, {"optimizer.lr=0.1"});
  leave_run(scratch, FolderState::has_checkpoints, {"optimizer.lr=0.2"});
  leave_run(scratch, FolderState::complete, {"optimizer.lr=0.1"});
  leave_run(scratch, FolderState::begun, {"optimizer.lr=0.3"});
  EXPECT_EQ(claim(scratch, "auto", {"optimizer.lr=0.1"}).path(), scratch / "x") << "an unfinished one first";
  EXPECT_EQ(claim(scratch, "auto", {"optimizer.lr=0.2"}).path(), scratch / "x-2");
  EXPECT_THAT(claim(scratch, "auto", {"optimizer.lr=0.3"}).said(), HasSubstr("x-4 has ended, and has no checkpoint"));
  const RunFolder newest = claim(scratch, "auto", {"optimizer.lr=0.4", "run.seed=7"});
  EXPECT_EQ(newest.path(), scratch / "x-4");
  EXPECT_THAT(newest.said(), HasSubstr("differs: run.seed: 1 -> 7, optimizer.lr: 0.3 -> 0.4"));
}

TEST(RunFolderTest, a_run_goes_on_compiled_or_not_and_says_so) {
  const ScratchFolder scratch;
  const auto compiled = [](const std::string& how) {
    return std::vector<std::string>{"model.kind=exported", "model.path=m.pt2", "model.compiled=" + how};
  };
  leave_run(scratch, FolderState::has_checkpoints, compiled("auto"));
  const std::string same = claim(scratch, "auto", compiled("auto")).said();
  EXPECT_THAT(same, HasSubstr("goes on"));
  EXPECT_THAT(same, Not(HasSubstr("differs")));
  EXPECT_THAT(claim(scratch, "auto", compiled("never")).said(),
              HasSubstr("differs: model.compiled: \"auto\" -> \"never\""));
}

TEST(RunFolderTest, runs_of_other_names_are_none_of_this) {
  const ScratchFolder scratch;
  leave_run(scratch, FolderState::has_checkpoints, {"run.name=x-2"});
  fs::create_directory(scratch / "x-03");
  fs::create_directory(scratch / "x-4");
  write_bytes(scratch / "x-4/thesis.tex", "years of work");
  const RunFolder folder = claim(scratch, "auto");
  EXPECT_EQ(folder.path(), scratch / "x");
  EXPECT_THAT(folder.said(), StartsWith("there is no run x in "));
  EXPECT_THROW(claim(scratch, "never", {"run.name=a/b"}), UserError);
  write_bytes(scratch / "file", "");
  EXPECT_THROW(claim(scratch, "never", {"run.name=file"}), UserError);
  EXPECT_THROW(claim(scratch, "never", {"run.name=x-4"}), UserError);
}

TEST(RunFolderTest, a_run_that_is_held_is_refused_by_its_holder) {
  const ScratchFolder scratch;
  leave_run(scratch, FolderState::has_checkpoints);
  const RunFolder first = claim(scratch, "auto");
  try {
    claim(scratch, "auto");
    FAIL() << "two in one folder";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("x is in use: process " + std::to_string(getpid()) + " on "));
  }
  leave_run(scratch, FolderState::has_checkpoints);
  EXPECT_EQ(claim(scratch, "auto").path(), scratch / "x-2") << "another of the same configuration is as good";
}

TEST(RunFolderTest, starts_at_the_same_moment_have_folders_of_their_own) {
  const ScratchFolder scratch;
  constexpr int k_starts = 8;
  for (int round = 0; round < 10; ++round) {
    std::atomic<int> ready{0};
    std::vector<std::string> taken(k_starts);
    std::vector<std::thread> starts;
    for (int i = 0; i < k_starts; ++i) {
      starts.emplace_back([&, i] {
        ++ready;
        while (ready < k_starts) std::this_thread::yield();
        RunFolder folder = claim(scratch, "never", {"run.name=r" + std::to_string(round)});
        if (i % 2 == 1) return;  // refused
        folder.begin();
        write_bytes(folder.path() / "profile.json", "{}");
        taken[static_cast<std::size_t>(i)] = folder.path().string();
      });
    }
    for (std::thread& start : starts) start.join();
    const std::set<std::string> different(taken.begin(), taken.end());
    EXPECT_EQ(different.size(), std::size_t{k_starts / 2 + 1}) << "and the empty one of those that were refused";
  }
}

TEST(RunLockTest, is_held_by_one_and_left_behind_by_none) {
  const ScratchFolder scratch;
  {
    const LockAttempt first = RunLock::try_lock(scratch.path(), std::chrono::milliseconds(0));
    ASSERT_TRUE(first.lock.has_value());
    const LockAttempt second = RunLock::try_lock(scratch.path(), std::chrono::milliseconds(0));
    EXPECT_FALSE(second.lock.has_value());
    EXPECT_THAT(second.holder, StartsWith("process " + std::to_string(getpid()) + " on "));
  }
  EXPECT_FALSE(fs::exists(scratch / "run.lock"));
  EXPECT_THAT(RunLock::try_lock(scratch / "nowhere", std::chrono::milliseconds(0)).holder, IsEmpty());
}

TEST(RunLockTest, a_dead_process_holds_nothing) {
  const ScratchFolder scratch;
  std::string kernel = testing::read_bytes("/proc/sys/kernel/random/boot_id");
  kernel.pop_back();
  write_bytes(scratch / "run.lock",
              R"({"host": "here", "kernel": ")" + kernel + R"(", "process": 1, "since": "then"})");
  EXPECT_TRUE(RunLock::try_lock(scratch.path(), std::chrono::milliseconds(0)).lock.has_value())
      << "number 1 lives, but holds no lock";
  write_bytes(scratch / "run.lock", R"({"kernel":")" + kernel + R"(","host":"he)");
  EXPECT_TRUE(RunLock::try_lock(scratch.path(), std::chrono::milliseconds(0)).lock.has_value())
      << "it died as it wrote";
  write_bytes(scratch / "run.lock", "no JSON");
  EXPECT_TRUE(RunLock::try_lock(scratch.path(), std::chrono::milliseconds(200)).lock.has_value());
}

// Another container's processes are not to be seen, and their numbers may be others' here.
TEST(RunLockTest, who_holds_it_is_told_by_when_it_started_and_out_of_sight_by_its_signs_of_life) {
  const ScratchFolder scratch;
  const auto grow_old = [&] {
    fs::last_write_time(scratch / "run.lock", fs::file_time_type::clock::now() - std::chrono::minutes(2));
  };
  {
    const LockAttempt held = RunLock::try_lock(scratch.path(), std::chrono::milliseconds(0));
    grow_old();
    EXPECT_THAT(holder_of(scratch.path()), StartsWith("process " + std::to_string(getpid()) + " on ")) << "it sleeps";
  }
  const std::string kernel = read_bytes("/proc/sys/kernel/random/boot_id").substr(0, 36);
  const auto leave = [&](const std::string& process, const std::string& more) {
    write_bytes(scratch / "run.lock", R"({"kernel":")" + kernel + R"(","host":"box","process":)" + process +
                                          R"(,"start_ticks":"1","since":"then")" + more + "}");
  };
  for (const std::string& process : {std::to_string(getpid()), std::string("99999999")}) {
    leave(process, "");
    EXPECT_EQ(holder_of(scratch.path()), "process " + process + " on box, since then");
    grow_old();
    EXPECT_THAT(holder_of(scratch.path()), IsEmpty()) << process;
    leave(process, R"(,"number_space":")" + fs::read_symlink("/proc/self/ns/pid").string() + '"');
    EXPECT_THAT(holder_of(scratch.path()), IsEmpty()) << "it would be seen here";
  }
}

TEST(RunLockTest, half_a_lock_begins_with_its_kernel) {
  const ScratchFolder scratch;
  const LockAttempt held = RunLock::try_lock(scratch.path(), std::chrono::milliseconds(0));
  const std::string content = read_bytes(scratch / "run.lock");
  EXPECT_THAT(content.substr(0, content.size() / 2),
              HasSubstr(testing::read_bytes("/proc/sys/kernel/random/boot_id").substr(0, 36) + '"'));
}

TEST(RunLockTest, another_machines_process_is_believed_while_it_shows_life) {
  const ScratchFolder scratch;
  const std::string content = R"({"host": "node3", "kernel": "another", "process": 17, "since": "then"})";
  write_bytes(scratch / "run.lock", content);
  EXPECT_EQ(RunLock::try_lock(scratch.path(), std::chrono::milliseconds(0)).holder, "process 17 on node3, since then")
      << "nobody waited";
  {
    std::jthread alive([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        fs::last_write_time(scratch / "run.lock", fs::file_time_type::clock::now());
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    });
    EXPECT_EQ(RunLock::try_lock(scratch.path(), std::chrono::seconds(20)).holder, "process 17 on node3, since then");
  }
  const LockAttempt taken = RunLock::try_lock(scratch.path(), std::chrono::milliseconds(300));
  EXPECT_TRUE(taken.lock.has_value());
  EXPECT_EQ(taken.taken_over, "process 17 on node3, since then");
}

// A process takes the lock, forks another that lives half a second longer, and dies.
void leave_the_lock_to_another(const fs::path& folder) {
  const pid_t holder = fork();
  if (holder == 0) {
    const LockAttempt held = RunLock::try_lock(folder, std::chrono::milliseconds(0));
    if (fork() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    _exit(held.lock ? 0 : 1);
  }
  int status = 1;
  waitpid(holder, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(RunLockTest, what_a_dead_process_has_left_to_one_that_saves_is_waited_for) {
  const ScratchFolder scratch;
  leave_the_lock_to_another(scratch.path());
  EXPECT_FALSE(RunLock::try_lock(scratch.path(), std::chrono::milliseconds(0)).lock.has_value()) << "nobody waited";
  EXPECT_TRUE(RunLock::try_lock(scratch.path(), std::chrono::seconds(20)).lock.has_value());
}

TEST(RunFolderTest, a_run_that_ends_while_it_is_waited_for_is_not_gone_on_with_before_a_stopped_one) {
  const ScratchFolder scratch;
  leave_run(scratch, FolderState::has_checkpoints);
  leave_run(scratch, FolderState::begun);
  leave_the_lock_to_another(scratch / "x-2");
  const std::jthread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    write_bytes(scratch / "x-2/result.json", "{}");
  });
  EXPECT_EQ(claim(scratch, "auto").path(), scratch / "x");
}

TEST(HeldFolderTest, may_be_written_while_its_holder_or_nobody_has_it) {
  const ScratchFolder scratch;
  EXPECT_THAT(HeldFolder(scratch / "nowhere").why_not_write(FolderUse::look), StartsWith("it does not see "));
  leave_the_lock_to_another(scratch.path());
  const HeldFolder held(scratch.path());
  EXPECT_THAT(held.why_not_write(FolderUse::look), IsEmpty());
  EXPECT_THAT(held.why_not_write(FolderUse::take), IsEmpty()) << "a process of the same run has it";
  std::this_thread::sleep_for(std::chrono::seconds(1));
  EXPECT_THAT(held.why_not_write(FolderUse::take), IsEmpty()) << "its holder is dead";
  EXPECT_FALSE(RunLock::try_lock(scratch.path(), std::chrono::milliseconds(0)).lock.has_value())
      << "now this process has it";
}

TEST(HeldFolderTest, may_not_be_written_once_another_has_taken_it) {
  const ScratchFolder scratch;
  std::optional<LockAttempt> first = RunLock::try_lock(scratch.path(), std::chrono::milliseconds(0));
  const std::string content = read_bytes(scratch / "run.lock");
  const HeldFolder held(scratch.path());
  first.reset();
  EXPECT_THAT(held.why_not_write(FolderUse::look), StartsWith("it does not see ")) << "the run has ended";
  write_bytes(scratch / "run.lock", R"({"host": "node3", "kernel": "another", "process": 17, "since": "then"})");
  EXPECT_THAT(held.why_not_write(FolderUse::take), EndsWith(" has been taken by process 17 on node3, since then"));
  write_bytes(scratch / "run.lock", content);
  EXPECT_THAT(held.why_not_write(FolderUse::take), IsEmpty());
}

TEST(RunLockTest, a_holder_shows_life) {
  const ScratchFolder scratch;
  const LockAttempt held = RunLock::try_lock(scratch.path(), std::chrono::milliseconds(0));
  const auto before = fs::last_write_time(scratch / "run.lock");
  for (int i = 0; i < 100 && fs::last_write_time(scratch / "run.lock") == before; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_GT(fs::last_write_time(scratch / "run.lock"), before);
}

}  // namespace
}  // namespace onebatch::launch
