// File systems whose locks are others than a local one's.
#include "launch/run_lock.hpp"

#include "scratch_folder.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace {

enum class Locks { local, none, over_nfs };
Locks locks = Locks::local;

int refused_with(int error) {
  errno = error;
  return -1;
}

}  // namespace

// In the place of the C library's, for this program alone.
extern "C" int flock(int descriptor, int operation) {
  const bool is_writable = (fcntl(descriptor, F_GETFL) & O_ACCMODE) != O_RDONLY;
  if (locks == Locks::none) return refused_with(ENOSYS);
  if (locks == Locks::over_nfs && (operation & LOCK_EX) != 0 && !is_writable) return refused_with(EBADF);
  return static_cast<int>(syscall(SYS_flock, descriptor, operation));
}

namespace onebatch::launch {
namespace {

using ::testing::IsEmpty;
using testing::read_bytes;
using testing::ScratchFolder;
using ::testing::StartsWith;
using testing::write_bytes;
namespace fs = std::filesystem;

class FileSystem {
 public:
  explicit FileSystem(Locks which) { locks = which; }
  ~FileSystem() { locks = Locks::local; }
  FileSystem(const FileSystem&) = delete;
  FileSystem& operator=(const FileSystem&) = delete;
};

TEST(RunLockTest, without_locks_a_holder_is_believed_while_it_shows_life) {
  const FileSystem lustre(Locks::none);
  const ScratchFolder scratch;
  const LockAttempt first = RunLock::try_lock(scratch.path(), std::chrono::milliseconds(0));
  ASSERT_TRUE(first.lock.has_value());
  const LockAttempt second = RunLock::try_lock(scratch.path(), RunLock::k_patience);
  EXPECT_FALSE(second.lock.has_value());
  EXPECT_THAT(second.holder, StartsWith("process " + std::to_string(getpid()) + " on "));
}

TEST(RunLockTest, without_locks_what_shows_no_life_is_taken_over) {
  const FileSystem lustre(Locks::none);
  const ScratchFolder scratch;
  std::string content;
  {
    const LockAttempt first = RunLock::try_lock(scratch.path(), std::chrono::milliseconds(0));
    content = read_bytes(scratch / "run.lock");
  }
  write_bytes(scratch / "run.lock", content);  // as a process that has died leaves it
  const LockAttempt second = RunLock::try_lock(scratch.path(), std::chrono::milliseconds(300));
  EXPECT_TRUE(second.lock.has_value());
  EXPECT_THAT(second.taken_over, StartsWith("process "));
}

TEST(RunLockTest, who_was_taken_for_dead_leaves_the_others_lock) {
  const ScratchFolder scratch;
  {
    const LockAttempt first = RunLock::try_lock(scratch.path(), std::chrono::milliseconds(0));
    write_bytes(scratch / "run.lock", "another's");
  }
  EXPECT_EQ(read_bytes(scratch / "run.lock"), "another's");
}

TEST(HeldFolderTest, over_nfs_it_is_taken_too) {
  const FileSystem nfs(Locks::over_nfs);
  const ScratchFolder scratch;
  write_bytes(scratch / "run.lock", R"({"kernel": "of one that is dead", "process": 17})");
  const HeldFolder held(scratch.path());
  EXPECT_THAT(held.why_not_write(FolderUse::take), IsEmpty());
  EXPECT_FALSE(RunLock::try_lock(scratch.path(), std::chrono::milliseconds(0)).lock.has_value());
}

}  // namespace
}  // namespace onebatch::launch
