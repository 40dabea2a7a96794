// What doctor reads of one machine, as one rank sees it: read in one place, judged in another, sent to rank 0 between.
#pragma once

#include "trainer/device/gpu_facts.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace onebatch::launch {

/// Where the machine shows itself: a test may show another one.
struct MachinePaths {
  std::filesystem::path root = "/";  // of /proc, /sys and /dev/shm; ONEBATCH_MACHINE_ROOT names another one
  std::filesystem::path output = "runs";

  static MachinePaths from_environment();
};

inline constexpr const char* k_no_folder = "it is no folder";
inline constexpr const char* k_no_such_folder = "there is no such folder";

/// A folder that is written to.
struct FolderFacts {
  std::string path;     // of the output: or the nearest one above that is there
  std::string problem;  // why nothing can be written there, one of these or in the system's words; empty: it can
  std::int64_t total_bytes = 0;
  std::int64_t free_bytes = 0;
};

/// -1 = no limit.
struct LimitFacts {
  std::int64_t now = -1;
  std::int64_t most = -1;  // to which anyone may raise it
};

struct MachineFacts {
  std::string host;
  std::string program;  // the file that runs
  std::string launcher = "none";
  int rank = 0;
  int ranks_here = 1;
  bool root = false;                               // whether it may do what the system's owner may
  std::map<std::string, std::string> versions;     // of what must be the same on all ranks
  std::map<std::string, std::string> environment;  // variables that change a run, those that are set

  std::string driver;  // of NVIDIA; empty: none
  int driver_gpus = 0;
  GpuFacts gpus;

  FolderFacts shared_memory;
  FolderFacts output;
  FolderFacts scratch;  // where Open MPI keeps what it needs while it runs
  LimitFacts locked_bytes;
  LimitFacts open_files;

  int processors = 1;  // of the machine
  int allowed = 1;     // of them this process's
  double quota = 0.0;  // processors' worth of time that the container may use; 0 = any

  std::vector<std::string> interfaces;  // that are up and have an address, but the loopback
  bool loopback = false;
  std::vector<std::string> infiniband;
};

/// A variable of the machine's environment; null where it is not set.
inline const std::string* variable(const MachineFacts& facts, const std::string& name) {
  const auto found = facts.environment.find(name);
  return found == facts.environment.end() ? nullptr : &found->second;
}

/// Never throws: what cannot be read is left out, or said in its place.
MachineFacts read_machine(const MachinePaths& paths);

std::string to_text(const MachineFacts& facts);
/// Throws std::exception where it is none.
MachineFacts parse_facts(const std::string& text);

}  // namespace onebatch::launch
