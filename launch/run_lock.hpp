// Who writes into a run's folder: one process at a time, on whatever host.
#pragma once

#include "trainer/base/session_options.hpp"

#include <chrono>
#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

namespace onebatch::launch {

struct LockAttempt;

/// Held from try_lock() until its end. The kernel lets go of the lock of a process that has died, so one that is left
/// behind on this machine is never in the way. File systems that do not share locks between machines are why the holder
/// also shows a sign of life every few seconds (the file's time): one that shows none is dead.
class RunLock {
 public:
  static constexpr const char* k_file = "run.lock";
  static constexpr std::chrono::seconds k_patience{20};  // several signs of life long

  /// Locks `folder`, which is there. Another machine's lock, and any where the file system has no locks, is watched for
  /// up to `patience`: where it shows no sign of life it is taken over. One that a process of this machine has left to
  /// those that save for it is waited for as long. Throws std::system_error where the file can be neither made nor
  /// opened.
  static LockAttempt try_lock(const std::filesystem::path& folder, std::chrono::milliseconds patience);

  RunLock(RunLock&& other) noexcept;
  RunLock& operator=(RunLock&&) = delete;
  ~RunLock();

 private:
  RunLock(std::filesystem::path file, int descriptor, std::string content);

  std::filesystem::path file_;
  int descriptor_;
  std::string content_;
  std::jthread signs_of_life_;
};

/// A run's folder as a rank that does not hold its lock sees it: whether the process that held it at the start, or what
/// that process has left behind, is still all that writes there.
class HeldFolder {
 public:
  explicit HeldFolder(std::filesystem::path folder);

  /// Why this process may not write there: it does not see the folder, or somebody else has taken it since. Empty where
  /// it may; taken, nobody else can take it until this process ends, where the file system has locks.
  [[nodiscard]] std::string why_not_write(FolderUse use) const;

 private:
  std::filesystem::path file_;
  std::string holder_;  // what the lock said
};

/// The process that works in a folder now, as LockAttempt::holder has it; empty: none does. Only looks: whoever wants
/// the lock gets it meanwhile. One that is not to be seen from here, on another machine or in another container, counts
/// as long as its last sign of life is of this minute.
[[nodiscard]] std::string holder_of(const std::filesystem::path& folder);

struct LockAttempt {
  std::optional<RunLock> lock;
  // Where there is none: "process 17 on node3, since 2026-01-31 12:00:00 UTC"; empty: the folder is gone.
  std::string holder;
  std::string taken_over;  // from whom, where a lock that nothing enforces showed no sign of life
};

}  // namespace onebatch::launch
