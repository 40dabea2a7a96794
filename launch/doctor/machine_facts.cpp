#include "launch/doctor/machine_facts.hpp"

#include "comm/error.hpp"
#include "comm/interfaces.hpp"
#include "comm/launcher.hpp"
#include "trainer/base/version.hpp"
#include "trainer/device/build_and_host.hpp"
#include "trainer/io/checksum.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <thread>

namespace onebatch::launch {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t k_tried_bytes = std::size_t{1} << 20;

constexpr const char* k_variables[] = {"OMP_NUM_THREADS",
                                       "OMP_WAIT_POLICY",
                                       "MKL_NUM_THREADS",
                                       "CUDA_VISIBLE_DEVICES",
                                       "NCCL_SOCKET_IFNAME",
                                       "NCCL_IB_DISABLE",
                                       "NCCL_IB_HCA",
                                       "NCCL_P2P_DISABLE",
                                       "NCCL_SHM_DISABLE",
                                       "PYTORCH_CUDA_ALLOC_CONF",
                                       "LD_PRELOAD",
                                       "OMPI_MCA_btl_tcp_if_include",
                                       "OMPI_MCA_mpi_yield_when_idle"};

std::string first_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

std::vector<std::string> entries_of(const fs::path& folder) {
  std::error_code none;
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder, none)) names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue …"
std::string driver_of(const fs::path& root) {
  const std::string line = first_line(root / "proc/driver/nvidia/version");
  std::string number;
  for (std::size_t begin = 0; begin < line.size();) {
    const std::size_t end = std::min(line.find(' ', begin), line.size());
    const std::string word = line.substr(begin, end - begin);
    if (number.empty() && word.find('.') != std::string::npos &&
        word.find_first_not_of("0123456789.") == std::string::npos)
      number = word;
    begin = end + 1;
  }
  return number.empty() ? line : number;
}

// The words of what went wrong; empty where a file can be made, filled, synced and removed there.
std::string why_not_written(const fs::path& folder) {
  std::string name = (folder / ".onebatch-doctor-XXXXXX").string();
  const int file = mkostemp(name.data(), O_CLOEXEC);
  if (file < 0) return std::strerror(errno);
  const std::vector<char> bytes(k_tried_bytes, 'x');
  const ssize_t written = write(file, bytes.data(), bytes.size());
  std::string problem = written < 0 ? std::strerror(errno) : "";
  if (written >= 0 && static_cast<std::size_t>(written) < bytes.size()) problem = std::strerror(ENOSPC);
  if (problem.empty() && fsync(file) != 0) problem = std::strerror(errno);
  close(file);
  unlink(name.c_str());
  return problem;
}

FolderFacts folder_facts(const fs::path& folder) {
  std::error_code none;
  FolderFacts facts;
  facts.path = folder.string();
  if (!fs::is_directory(folder, none)) {
    facts.problem = fs::exists(folder, none) ? k_no_folder : k_no_such_folder;
    return facts;
  }
  struct statvfs room {};
  if (statvfs(folder.c_str(), &room) == 0) {
    facts.total_bytes = static_cast<std::int64_t>(room.f_blocks * room.f_frsize);
    facts.free_bytes = static_cast<std::int64_t>(room.f_bavail * room.f_frsize);
  }
  facts.problem = why_not_written(folder);
  return facts;
}

// Where a run makes the folders that are not there yet.
fs::path nearest_there(fs::path place) {
  std::error_code none;
  while (!fs::exists(place, none)) {
    const fs::path above = place.parent_path().empty() ? fs::path(".") : place.parent_path();
    if (above == place) break;
    place = above;
  }
  return place;
}

LimitFacts limit_of(int resource) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return {};
  const auto number = [](rlim_t value) { return value == RLIM_INFINITY ? -1 : static_cast<std::int64_t>(value); };
  return {number(limit.rlim_cur), number(limit.rlim_max)};
}

int allowed_processors() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

// "150000 100000": microseconds of each so many; "max 100000": no quota.
double quota_of(const fs::path& root) {
  std::ifstream in(root / "sys/fs/cgroup/cpu.max");
  double time = 0.0;
  double period = 0.0;
  return (in >> time >> period) && period > 0.0 ? time / period : 0.0;
}

void read_interfaces(MachineFacts& facts) {
  std::set<std::string> names;
  for (const comm::Interface& one : comm::interfaces_of_this_machine()) {
    facts.loopback = facts.loopback || one.is_loopback();
    if (!one.is_loopback()) names.insert(one.name);
  }
  facts.interfaces.assign(names.begin(), names.end());
}

void read_versions(MachineFacts& facts) {
  std::error_code none;
  facts.program = fs::read_symlink("/proc/self/exe", none).string();
  facts.versions["onebatch"] = k_version;
  facts.versions["program"] = to_text(checksum_of("/proc/self/exe")).substr(0, 12);
  for (const std::string& line : describe_build_and_host()) {
    const std::string name = line.substr(0, line.find(": "));
    if (name == "libtorch" || name == "mpi" || name == "nccl") facts.versions[name] = line.substr(name.size() + 2);
  }
}

fs::path scratch_folder() {
  for (const char* name : {"OMPI_MCA_orte_tmpdir_base", "TMPDIR", "TEMP", "TMP"}) {
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') return value;
  }
  return "/tmp";
}

}  // namespace

MachinePaths MachinePaths::from_environment() {
  MachinePaths paths;
  if (const char* root = std::getenv("ONEBATCH_MACHINE_ROOT"); root != nullptr) paths.root = root;
  return paths;
}

MachineFacts read_machine(const MachinePaths& paths) {
  const comm::LauncherView launched = comm::read_launcher();
  MachineFacts facts;
  facts.host = comm::host_name();
  facts.launcher = launched.launcher;
  facts.rank = launched.rank;
  facts.root = geteuid() == 0;
  facts.ranks_here = std::max(1, launched.node_local_size);
  read_versions(facts);
  for (const char* name : k_variables) {
    if (const char* value = std::getenv(name); value != nullptr) facts.environment[name] = value;
  }
  facts.driver = driver_of(paths.root);
  facts.driver_gpus = static_cast<int>(entries_of(paths.root / "proc/driver/nvidia/gpus").size());
  facts.gpus = read_gpu_facts();
  facts.shared_memory = folder_facts(paths.root / "dev/shm");
  facts.output = folder_facts(nearest_there(paths.output));
  facts.scratch = folder_facts(scratch_folder());
  facts.locked_bytes = limit_of(RLIMIT_MEMLOCK);
  facts.open_files = limit_of(RLIMIT_NOFILE);
  facts.processors = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  facts.processors = std::max(facts.processors, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  facts.allowed = allowed_processors();
  facts.quota = quota_of(paths.root);
  read_interfaces(facts);
  facts.infiniband = entries_of(paths.root / "sys/class/infiniband");
  return facts;
}

}  // namespace onebatch::launch
