#include "launch/doctor/doctor_command.hpp"

#include "comm/launcher.hpp"
#include "comm/local_communicator.hpp"
#include "comm/watchdog.hpp"
#include "comm/world.hpp"
#include "launch/doctor/host_findings.hpp"
#include "launch/doctor/mpi_findings.hpp"
#include "launch/doctor/tried_program.hpp"
#include "launch/log_file.hpp"
#include "launch/standard_streams.hpp"
#include "launch/written_files.hpp"
#include "trainer/device/agreement.hpp"
#include "trainer/run/reduce_trial.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace onebatch::launch {
namespace {

constexpr double k_to_say_its_version_seconds = 10.0;
constexpr int k_most_ranks_tried = 8;
constexpr int k_looks_at_the_clock = 15;
constexpr std::int64_t k_reduced_bytes = std::int64_t{1} << 20;

// Says each finding when it is made, and keeps it for the document.
class Doctor {
 public:
  explicit Doctor(const Arguments& arguments) : arguments_(arguments) {}

  void say(const Finding& finding) {
    report_.findings.push_back(finding);
    if (!arguments_.quiet || is_problem(finding)) print_out(text_of(finding));
  }
  void say(const std::vector<Finding>& findings) {
    for (const Finding& finding : findings) say(finding);
  }

  // Of another rank's machine: what is well is not said.
  void say_of_another(const Finding& finding) {
    if (!add_of_another(finding, report_.findings) || !is_problem(finding)) return;
    Finding named = finding;
    named.found = fmt::format("on {}: {}", named.hosts.empty() ? "" : named.hosts.front(), named.found);
    print_out(text_of(named));
  }

  int end(int ranks) {
    report_.ranks = ranks;
    print_out(fmt::format("{}\n", summary_of(report_.findings)));
    if (!arguments_.json_file.empty()) write_output(arguments_.json_file, to_json(report_) + "\n");
    const auto bad = std::ranges::any_of(report_.findings, [&](const Finding& one) {
      return one.state == State::broken || (arguments_.strict && one.state == State::warning);
    });
    return static_cast<int>(bad ? ExitCode::failed : ExitCode::done);
  }

  [[nodiscard]] bool quiet() const { return arguments_.quiet; }
  [[nodiscard]] double deadline() const { return arguments_.deadline_seconds; }

 private:
  const Arguments& arguments_;
  DoctorReport report_;
};

MachineFacts facts_here(const Arguments& arguments) {
  MachinePaths paths = MachinePaths::from_environment();
  paths.output = arguments.output_folder;
  return read_machine(paths);
}

int alone(const Arguments& arguments) {
  Doctor doctor(arguments);
  const MachineFacts facts = facts_here(arguments);
  if (!doctor.quiet()) print_out(fmt::format("this machine, {}\n", facts.host));
  doctor.say(host_findings(facts));
  const std::vector<FoundMpirun> mpiruns = find_mpiruns(k_to_say_its_version_seconds);
  const Finding mpi = mpirun_finding(mpiruns, all_in_path("mpirun").size(), facts.versions.at("mpi"));
  doctor.say(mpi);
  if (mpi.state != State::well || !facts.scratch.problem.empty()) {
    const char* without = mpi.state != State::well ? "the right mpirun" : "a place for temporary files";
    doctor.say(
        Finding{.check = "ranks", .state = State::skipped, .found = fmt::format("not tried without {}", without)});
    return doctor.end(1);
  }
  const int ranks = std::clamp(static_cast<int>(facts.gpus.names.size()), 2, k_most_ranks_tried);
  if (!doctor.quiet()) print_out(fmt::format("{} ranks, tried here for at most {:g} s\n", ranks, doctor.deadline()));
  doctor.say(try_ranks(facts, mpiruns.front().path, ranks, doctor.deadline()));
  return doctor.end(1);
}

// How far each rank's clock is from rank 0's: the median over some looks that all take at once. Collective.
std::vector<double> clock_offsets(comm::Communicator& control) {
  using Clock = std::chrono::system_clock;
  const auto size = static_cast<std::size_t>(control.size());
  std::vector<std::vector<double>> looks(size);
  for (int look = 0; look < k_looks_at_the_clock; ++look) {
    control.barrier();
    const double own = std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
    std::vector<double> all(size);
    control.all_gather(&own, all.data(), sizeof(double));
    for (std::size_t rank = 0; rank < size; ++rank) looks[rank].push_back(all[rank] - all[0]);
  }
  std::vector<double> offsets;
  for (auto& of_rank : looks) {
    std::ranges::nth_element(of_rank, of_rank.begin() + k_looks_at_the_clock / 2);
    offsets.push_back(of_rank[k_looks_at_the_clock / 2]);
  }
  return offsets;
}

Finding reduction_finding(const ReduceTrial& trial, const comm::World& world) {
  Finding finding{.check = "all-reduce"};
  finding.found = fmt::format("1 MiB over {} ranks in {:.2f} ms by {}, on {}", world.size(), trial.seconds * 1e3,
                              trial.carrier, trial.device);
  if (!trial.right) {
    finding.state = State::broken;
    finding.found += ": the sum is wrong";
    finding.why = "nothing that several ranks train here can be right";
    finding.mend = "NCCL_P2P_DISABLE=1 onebatch doctor";
    finding.otherwise = "that tells a bad link between GPUs from all else; on servers switch ACS off";
  } else if (const std::string why = world.why_not_shared(); !why.empty()) {
    finding.state = State::warning;
    finding.found += fmt::format("; without shared memory: {}", why);
    finding.why = "the same sums, several times slower";
    finding.mend = "mount -o remount,size=4g /dev/shm";
    finding.otherwise = "in a container: docker run --shm-size 4g …";
  }
  return finding;
}

Finding reduction_failed(const std::string& words) {
  return {.check = "all-reduce",
          .state = State::broken,
          .found = words,
          .why = "no step of several ranks can end",
          .mend = "NCCL_DEBUG=INFO onebatch doctor",
          .otherwise = "that shows what NCCL tried; comm.backend = \"mpi\" goes without it"};
}

// Between the ranks. Collective.
void look_at_ranks(Doctor& doctor, comm::World& world, const MachineFacts& own) {
  const bool first = world.rank() == 0;
  std::vector<MachineFacts> all;
  for (const std::string& text : comm::all_gather_text(world.control(), to_text(own))) all.push_back(parse_facts(text));
  const std::vector<double> offsets = clock_offsets(world.control());
  if (first) {
    for (const MachineFacts& other : all) {
      if (other.rank == 0) continue;
      for (const Finding& finding : host_findings(other)) doctor.say_of_another(finding);
    }
    doctor.say({same_versions(all), same_environment(all), same_time(all, offsets)});
  }
  ReduceTrial trial;
  std::string problem;
  try {
    trial = try_reduction(world, k_reduced_bytes);
  } catch (const AgreedError& error) {
    problem = error.what();
  } catch (const std::exception& error) {  // the others may wait where this rank does not come, and never hear of it
    comm::say_failure(own.rank, words_of(error));
    problem = fmt::format("rank {} on {}: {}", own.rank, own.host, words_of(error));
  }
  const std::vector<std::string> problems = comm::all_gather_text(world.control(), problem);
  if (!first) return;
  const auto failed = std::ranges::find_if(problems, [](const std::string& text) { return !text.empty(); });
  doctor.say(failed == problems.end() ? reduction_finding(trial, world) : reduction_failed(*failed));
  if (!trial.why_not_gpus.empty())
    doctor.say(Finding{.check = "a GPU each",
                       .state = State::warning,
                       .found = trial.why_not_gpus,
                       .why = "training refuses that; this trial took the CPU",
                       .mend = "onebatch launch doctor"});
}

Finding no_world(const std::exception& error, const comm::LauncherView& launched) {
  const std::string words = error.what();
  const std::string by_hand = fmt::format("mpirun -np {} --bind-to none onebatch doctor", launched.size);
  const bool slurm = launched.launcher == "slurm";
  return {.check = "ranks",
          .state = State::broken,
          .found = words.substr(0, words.find(". Start them")),
          .why = "each rank would train a model of its own",
          .mend = slurm ? fmt::format("srun --mpi=pmix -n {} onebatch doctor", launched.size) : by_hand,
          .otherwise =
              slurm ? by_hand
                    : "with the mpirun of Open MPI, which onebatch doctor looks for where no launcher has started it"};
}

int with_others(const Arguments& arguments, const comm::LauncherView& launched) {
  const bool first = launched.rank == 0;
  Doctor doctor(arguments);
  const MachineFacts facts = facts_here(arguments);
  if (first) {
    if (!doctor.quiet()) print_out(fmt::format("rank 0's machine, {}\n", facts.host));
    doctor.say(host_findings(facts));
    if (!doctor.quiet())
      print_out(fmt::format("{} ranks, tried for at most {:g} s\n",
                            launched.size > 0 ? fmt::to_string(launched.size) : "all", doctor.deadline()));
  }
  std::unique_ptr<comm::World> world;
  try {
    comm::say_failures_by(print_error);
    world = comm::World::create(arguments.deadline_seconds);
  } catch (const std::exception& error) {
    if (!first) return static_cast<int>(ExitCode::failed);
    doctor.say(no_world(error, launched));
    return doctor.end(launched.size);
  }
  try {
    agree_on_rank_0(world->control(), [&] {
      if (!arguments.json_file.empty()) check_can_be_written("--json", arguments.json_file, Output::text);
    });
  } catch (const AgreedError& error) {
    if (first) print_error(fmt::format("onebatch: {}\n", error.what()));
    world->close();
    return static_cast<int>(error.code());
  }
  look_at_ranks(doctor, *world, facts);
  int code = first ? doctor.end(world->size()) : 0;
  world->control().broadcast(&code, sizeof(code), 0);
  end_log(code);
  world->close();
  return code;
}

}  // namespace

int doctor(const Arguments& arguments) {
  try {
    if (!arguments.log_folder.empty()) begin_log(arguments.log_folder, arguments.as_typed);
    const comm::LauncherView launched = comm::read_launcher();
    // At once, where nobody can be left waiting: mpirun ends the others, and only the first writes.
    if (!arguments.json_file.empty() && (launched.size == 1 || launched.launcher == "mpirun") && launched.rank == 0)
      check_can_be_written("--json", arguments.json_file, Output::text);
    return launched.launcher != "none" ? with_others(arguments, launched) : alone(arguments);
  } catch (const std::exception& error) {
    print_error(fmt::format("onebatch: {}\n", words_of(error)));
    return static_cast<int>(exit_code_of(error));
  }
}

}  // namespace onebatch::launch
