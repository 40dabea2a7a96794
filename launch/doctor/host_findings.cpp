#include "launch/doctor/host_findings.hpp"

#include "launch/shell_words.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>

namespace onebatch::launch {
namespace {

constexpr std::int64_t k_mebibyte = std::int64_t{1} << 20;
constexpr std::int64_t k_enough_shared_memory = 256 * k_mebibyte;
constexpr std::int64_t k_enough_disk = 1024 * k_mebibyte;
constexpr std::int64_t k_full_disk = 64 * k_mebibyte;
constexpr std::int64_t k_enough_scratch = 64 * k_mebibyte;
constexpr std::int64_t k_enough_locked = 1024 * k_mebibyte;
constexpr std::int64_t k_enough_files = 1024;

std::string size_text(std::int64_t bytes) {
  if (bytes >= 10 * 1024 * k_mebibyte) return fmt::format("{} GiB", bytes >> 30);
  return bytes >= k_mebibyte ? fmt::format("{} MiB", bytes >> 20) : fmt::format("{} KiB", bytes >> 10);
}

std::string as_root(const MachineFacts& facts, const std::string& command) {
  return (facts.root ? "" : "sudo ") + command;
}

Finding shared_memory(const MachineFacts& facts) {
  const FolderFacts& folder = facts.shared_memory;
  Finding finding{.check = "shared memory"};
  finding.found =
      fmt::format("{}: {}, {} of them free", folder.path, size_text(folder.total_bytes), size_text(folder.free_bytes));
  if (!folder.problem.empty()) {
    finding.state = State::broken;
    finding.found = fmt::format("{}: {}", folder.path, folder.problem);
    finding.why = "the ranks of a node pass everything through it: several may not even start";
  } else if (folder.free_bytes < k_enough_shared_memory) {
    finding.state = State::warning;
    finding.why =
        "the ranks of a node keep their gradients there; where they have no room these are copied piece by piece";
  }
  if (!is_problem(finding)) return finding;
  finding.mend = folder.problem == k_no_such_folder
                     ? fmt::format("{0} {2} && {1} {2}", as_root(facts, "mkdir -p"),
                                   as_root(facts, "mount -t tmpfs -o size=4g tmpfs"), folder.path)
                     : as_root(facts, fmt::format("mount -o remount,rw,size=4g {}", folder.path));
  finding.otherwise = "in a container: docker run --shm-size 4g …; Kubernetes: the memory volume of mpijob.yaml";
  return finding;
}

Finding locked_memory(const MachineFacts& facts) {
  const LimitFacts& limit = facts.locked_bytes;
  Finding finding{.check = "locked memory"};
  finding.found = limit.now < 0 ? "any amount" : size_text(limit.now);
  if (facts.infiniband.empty()) {
    finding.state = State::skipped;
    finding.found += "; no InfiniBand here, which alone needs it";
  } else if (limit.now >= 0 && limit.now < k_enough_locked) {
    finding.state = State::broken;
    finding.why = fmt::format("{} can use no memory that is not locked: MPI and NCCL fail there, or take a slower way",
                              facts.infiniband.front());
    finding.mend = "ulimit -l unlimited";
    finding.otherwise =
        "where that is refused, \"* - memlock unlimited\" in /etc/security/limits.conf; docker run --ulimit "
        "memlock=-1; Slurm: "
        "LimitMEMLOCK=infinity of slurmd";
  }
  return finding;
}

Finding open_files(const MachineFacts& facts) {
  const LimitFacts& limit = facts.open_files;
  Finding finding{.check = "open files"};
  finding.found = limit.now < 0 ? "any number" : fmt::format("{}", limit.now);
  if (limit.now < 0 || limit.now >= k_enough_files) return finding;
  const bool may_be_raised = limit.most < 0 || limit.most >= k_enough_files;
  finding.state = limit.now < k_enough_files / 4 ? State::broken : State::warning;
  finding.why =
      "MPI opens some for each rank, data one for each file and worker: a run ends with \"Too many open files\"";
  if (may_be_raised)
    finding.mend = fmt::format("ulimit -n {}", limit.most < 0 ? 65536 : std::min<std::int64_t>(limit.most, 65536));
  finding.otherwise = "\"* - nofile 65536\" in /etc/security/limits.conf; docker run --ulimit nofile=65536";
  return finding;
}

Finding processors(const MachineFacts& facts) {
  Finding finding{.check = "processors"};
  finding.found = fmt::format("{} of {}", facts.allowed, facts.processors);
  if (facts.quota > 0.0) finding.found += fmt::format(", with the time of {:.3g}", facts.quota);
  if (facts.allowed == 1 && facts.processors > std::max(1, facts.ranks_here)) {
    finding.state = State::warning;
    finding.found = fmt::format("this process may use 1 of {}", facts.processors);
    finding.why = "what reads data and, on a CPU, what computes takes turns on one core";
    if (facts.launcher == "mpirun") {
      finding.found += ": mpirun has bound it";
      finding.mend = "mpirun --bind-to none …, or onebatch launch, which writes that";
    } else {
      finding.mend = fmt::format("taskset -p -c 0-{} $$", facts.processors - 1);
      finding.otherwise = "Slurm: --cpus-per-task; docker run --cpuset-cpus";
    }
  } else if (facts.ranks_here > facts.allowed && facts.launcher == "mpirun" &&
             variable(facts, "OMPI_MCA_mpi_yield_when_idle") == nullptr) {
    finding.state = State::warning;
    finding.found += fmt::format(", for {} ranks", facts.ranks_here);
    finding.why = "ranks that wait keep those that compute from their cores";
    finding.mend = "export OMPI_MCA_mpi_yield_when_idle=1";
  } else if (facts.quota > 0.0 && facts.quota * 2.0 <= facts.allowed && variable(facts, "OMP_NUM_THREADS") == nullptr) {
    finding.state = State::warning;
    finding.why =
        "as many threads are started as there are processors, and the container stops them all most of the time";
    finding.mend = fmt::format("export OMP_NUM_THREADS={}", std::max(1, static_cast<int>(std::lround(facts.quota))));
  }
  return finding;
}

Finding threads(const MachineFacts& facts) {
  Finding finding{.check = "OMP_NUM_THREADS"};
  const std::string* text = variable(facts, "OMP_NUM_THREADS");
  if (text == nullptr) {
    finding.found = "not set: each rank takes its part of the processors";
    return finding;
  }
  finding.found = *text;
  int number = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  const bool plain = error == std::errc() && end == text->data() + text->size() && number > 0;
  const int part = std::max(1, facts.processors / std::max(1, facts.ranks_here));
  if (!plain) {
    finding.state = State::warning;
    finding.why = "it is no number of threads: OpenMP takes one for each processor, in every rank";
  } else if (number > 2 * part) {
    finding.state = State::warning;
    finding.found +=
        fmt::format(" threads in each of {} rank(s), on {} processors", facts.ranks_here, facts.processors);
    finding.why = "threads that wait for each other take each other's processor: many times slower";
  } else if (number * 4 <= part && facts.gpus.names.empty()) {
    finding.state = State::warning;
    finding.found += fmt::format(" of the {} processors that each rank could have", part);
    finding.why = "ranks compute on the CPU here: the others are idle";
  }
  if (is_problem(finding)) finding.mend = "unset OMP_NUM_THREADS";
  return finding;
}

// Names of NCCL_SOCKET_IFNAME, "eth0,ib" and "=eth0" alike; "^lo" leaves out.
bool names_any(const std::string& list, const std::vector<std::string>& interfaces) {
  if (list.empty() || list.front() == '^') return true;
  std::istringstream words(list.front() == '=' ? list.substr(1) : list);
  for (std::string word; std::getline(words, word, ',');) {
    if (word == "lo" || word.find('/') != std::string::npos) return true;
    if (std::ranges::any_of(interfaces, [&](const std::string& name) { return name.starts_with(word); })) return true;
  }
  return false;
}

Finding network(const MachineFacts& facts) {
  Finding finding{.check = "network"};
  finding.found =
      facts.interfaces.empty() ? "the loopback alone" : fmt::format("{}", fmt::join(facts.interfaces, ", "));
  if (!facts.infiniband.empty()) finding.found += fmt::format("; InfiniBand {}", fmt::join(facts.infiniband, ", "));
  for (const char* name : {"NCCL_SOCKET_IFNAME", "OMPI_MCA_btl_tcp_if_include"}) {
    const std::string* list = variable(facts, name);
    if (list == nullptr || names_any(*list, facts.interfaces)) continue;
    finding.state = State::broken;
    finding.found = fmt::format("{}={}, and here is {}", name, *list, finding.found);
    finding.why = "ranks on several hosts do not find each other";
    finding.mend = fmt::format("unset {}", name);
    return finding;
  }
  if (facts.interfaces.empty() && !facts.loopback) {
    finding.state = State::broken;
    finding.found = "not even the loopback is up";
    finding.why = "mpirun's ranks find each other through it, on one machine too";
    finding.mend = as_root(facts, "ip link set lo up");
  } else if (facts.interfaces.empty()) {
    finding.state = State::warning;
    finding.why = "this machine computes alone: ranks on other hosts cannot reach it";
    finding.mend = "ip -brief address";
    finding.otherwise = "in a container: docker run --network host …";
  }
  return finding;
}

// Of why no file can be made there although there is room; a file in the folder's place no command mends.
std::string mend_of_output(const MachineFacts& facts) {
  const FolderFacts& folder = facts.output;
  if (folder.problem == k_no_folder) return {};
  if (folder.problem.starts_with("No space"))  // for another file
    return fmt::format("du -x --inodes {} | sort -n | tail", folder.path);
  if (folder.problem.starts_with("Disk quota")) return fmt::format("du -xh {} | sort -h | tail", folder.path);
  if (folder.problem.starts_with("Read-only"))
    return as_root(facts, fmt::format("mount -o remount,rw {}", folder.path));
  return as_root(facts, fmt::format("chmod u+rwx {}", folder.path));
}

Finding disk(const MachineFacts& facts) {
  const FolderFacts& folder = facts.output;
  Finding finding{.check = "disk"};
  finding.found = fmt::format("{}: {} free", folder.path, size_text(folder.free_bytes));
  finding.otherwise = "run.output_dir names another folder (here: --dir FOLDER)";
  if (folder.free_bytes < k_full_disk && folder.total_bytes > 0) {
    finding.state = State::broken;
    finding.why = "the first checkpoint ends the run";
    finding.mend = fmt::format("du -xh {} | sort -h | tail", folder.path);
  } else if (!folder.problem.empty()) {
    finding.state = State::broken;
    finding.found = fmt::format("{}: nothing can be written there: {}", folder.path, folder.problem);
    finding.why = "runs and their checkpoints are kept there";
    finding.mend = mend_of_output(facts);
  } else if (folder.free_bytes < k_enough_disk) {
    finding.state = State::warning;
    finding.why = "a checkpoint has two to three times the bytes of a model, and there are three while one is written";
    finding.mend = fmt::format("du -xh {} | sort -h | tail", folder.path);
  }
  if (!is_problem(finding)) finding.otherwise.clear();
  return finding;
}

Finding scratch(const MachineFacts& facts) {
  const FolderFacts& folder = facts.scratch;
  Finding finding{.check = "temporary files"};
  finding.found = fmt::format("{}: {} free", folder.path, size_text(folder.free_bytes));
  if (folder.problem.empty() && folder.free_bytes >= k_enough_scratch) return finding;
  finding.state = State::broken;
  if (!folder.problem.empty()) finding.found = fmt::format("{}: {}", folder.path, folder.problem);
  finding.why = "mpirun and launch keep what they need there while they run, and do not start without";
  finding.mend = "export TMPDIR=$HOME";
  if (folder.problem == k_no_such_folder) {
    finding.mend = "mkdir -p " + quoted_for_shell(folder.path);
    finding.otherwise = "export TMPDIR=/tmp";
  }
  return finding;
}

}  // namespace

std::vector<Finding> host_findings(const MachineFacts& facts) {
  std::vector<Finding> findings = gpu_findings(facts);
  for (const auto& look : {shared_memory, locked_memory, open_files, processors, threads, network, disk, scratch})
    findings.push_back(look(facts));
  for (Finding& one : findings) one.hosts = {facts.host};
  return findings;
}

}  // namespace onebatch::launch
