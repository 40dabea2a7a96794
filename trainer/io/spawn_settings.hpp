// Another program is started: with signals as a program expects to find them, whatever this one has done with its own.
#pragma once

#include <spawn.h>
#include <sys/types.h>
#include <unistd.h>

#include <csignal>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace onebatch {

/// Entries of this process's environment, without what would make a program believe that it is a rank.
inline std::vector<char*> environment_of_one() {
  std::vector<char*> kept;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable = *entry;
    bool of_a_rank = false;
    for (const char* prefix :
         {"OMPI_", "PMIX_", "PMI_", "SLURM_PROCID=", "SLURM_LOCALID=", "SLURM_STEP_", "ONEBATCH_LAUNCH_FOLDER="})
      of_a_rank = of_a_rank || variable.starts_with(prefix);
    if (!of_a_rank) kept.push_back(*entry);
  }
  return kept;
}

class SpawnSettings {
 public:
  SpawnSettings() {
    posix_spawn_file_actions_init(&files_);
    posix_spawnattr_init(&attributes_);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    set(POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&files_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  /// `descriptor` of this process is `as` there.
  void pass(int descriptor, int as) { posix_spawn_file_actions_adddup2(&files_, descriptor, as); }
  void open(const char* file, int flags, int as) { posix_spawn_file_actions_addopen(&files_, as, file, flags, 0); }
  /// It leads a process group.
  void lead_group() {
    posix_spawnattr_setpgroup(&attributes_, 0);
    set(POSIX_SPAWN_SETPGROUP);
  }

  /// The program words[0], found along PATH. 0, or the error; `process` is its number then. `environment` ends with
  /// null.
  int spawn(pid_t& process, std::span<const std::string> words, char* const* environment) const {
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    return ::posix_spawnp(&process, arguments.front(), &files_, &attributes_, arguments.data(), environment);
  }

 private:
  void set(int flags) {
    flags_ |= flags;
    posix_spawnattr_setflags(&attributes_, static_cast<short>(flags_));
  }

  posix_spawn_file_actions_t files_{};
  posix_spawnattr_t attributes_{};
  int flags_ = 0;
};

}  // namespace onebatch
