#include "launch/commands.hpp"

#include "comm/error.hpp"
#include "comm/incident.hpp"
#include "comm/launcher.hpp"
#include "comm/local_communicator.hpp"
#include "comm/long_work.hpp"
#include "comm/watchdog.hpp"
#include "comm/world.hpp"
#include "launch/config_loader.hpp"
#include "launch/first_line.hpp"
#include "launch/heartbeat.hpp"
#include "launch/host_commands.hpp"
#include "launch/incident_file.hpp"
#include "launch/log_file.hpp"
#include "launch/lone_commands.hpp"
#include "launch/plan_command.hpp"
#include "launch/predict_command.hpp"
#include "launch/report_command.hpp"
#include "launch/report_texts.hpp"
#include "launch/run_folder.hpp"
#include "launch/signals.hpp"
#include "launch/sinks.hpp"
#include "launch/standard_streams.hpp"
#include "launch/timeout.hpp"
#include "launch/told_programs.hpp"
#include "launch/weights_option.hpp"
#include "launch/written_files.hpp"
#include "trainer/checkpoint/named_checkpoint.hpp"
#include "trainer/data/count_samples.hpp"
#include "trainer/device/agreement.hpp"
#include "trainer/documents/documents.hpp"
#include "trainer/plan/plan_cluster.hpp"
#include "trainer/run/built_in_kinds.hpp"
#include "trainer/run/session.hpp"
#include "trainer/settings/keys.hpp"

#include <fmt/format.h>

namespace onebatch::launch {
namespace {

// Of several runs of one name, each may be looked at for as long as its holder has to show a sign of life.
constexpr std::chrono::seconds k_longest_wait_for_a_lock = 3 * RunLock::k_patience;

namespace fs = std::filesystem;

int code(ExitCode exit_code) {
  return static_cast<int>(exit_code);
}

class Program {
 public:
  Program(const Arguments& arguments, comm::World& world, const std::atomic<int>* stop)
      : arguments_(arguments), world_(world), stop_(stop) {}

  int run() {
    const WhileOutputWaits reader_pauses([this] { world_.watchdog().note_progress(); });
    std::optional<Heartbeat> heartbeat;
    if (first() && !arguments_.quiet) heartbeat.emplace([this] { return world_.watchdog().activity(); });
    if (arguments_.command == "info") return after_writing(describe_host(world_));
    if (arguments_.command == "bench") return after_writing(bench_all_reduce(arguments_.most_bytes, world_));
    agree_on_rank_0(world_.control(), [&] {
      check_written_files(arguments_);
      const fs::path& checkpoint = arguments_.checkpoint;
      if (!checkpoint.empty() && !fs::exists(checkpoint)) throw UserError(no_checkpoint_at(checkpoint));
    });
    if (!load()) return code(ExitCode::user_error);
    if (first()) warn_of_binding(world_);
    if (first() && !arguments_.quiet && needs_devices())
      print_out(beginning_text(loaded_.configuration, world_.size(), arguments_.command));
    if (arguments_.command == "train") return train();
    if (arguments_.command == "probe") return probe();
    if (arguments_.command == "plan") return needs_devices() ? plan() : plan_from_profile();
    if (arguments_.command == "verify") return verify();
    if (arguments_.command == "predict") return predict();
    return evaluate();
  }

 private:
  bool first() const { return world_.rank() == 0; }
  bool needs_devices() const {
    return arguments_.profile_file.empty() && arguments_.devices.empty() && arguments_.global_batches.empty();
  }

  // Rank 0 reads, everyone parses the same text: all find the same mistakes and leave together.
  bool load() {
    std::string text;
    std::string problem;
    if (first()) {
      try {
        text = read_file(arguments_.config_file);
      } catch (const UserError& error) {
        problem = error.what();
      }
    }
    problem = comm::broadcast_text(world_.control(), problem, 0);
    if (!problem.empty()) throw AgreedError(ExitCode::user_error, problem);
    loaded_ =
        load_config(comm::broadcast_text(world_.control(), text, 0), arguments_.config_file, arguments_.assignments);
    if (arguments_.resume) go_on_with_the_last();
    const int ranks = needs_devices() ? world_.size() : 0;
    auto mistakes = loaded_.mistakes;
    for (auto& mistake : check_contradictions(loaded_, arguments_.config_file, ranks))
      mistakes.push_back(std::move(mistake));
    const std::string mine =
        mistakes.empty() ? ""
                         : fmt::format("{}onebatch: {} mistake{} in the configuration\n", mistakes_text(mistakes),
                                       mistakes.size(), mistakes.size() == 1 ? "" : "s");
    return agree_on_configuration(comm::all_gather_text(world_.control(), mine));
  }

  // A checkpoint that the configuration names is the one to begin from.
  void go_on_with_the_last() {
    ResumeMode& resume = loaded_.configuration.checkpoint.resume;
    if (resume != ResumeMode::never) return;
    resume = ResumeMode::automatic;
    loaded_.origins["checkpoint.resume"] = "command line";
  }

  // Every rank has its own command line: they may differ, and all must leave together.
  bool agree_on_configuration(const std::vector<std::string>& mistakes) const {
    for (std::size_t rank = 0; rank < mistakes.size(); ++rank) {
      if (mistakes[rank].empty()) continue;
      if (first())
        print_error(
            fmt::format("{}{}", mistakes[0].empty() ? fmt::format("on rank {} alone:\n", rank) : "", mistakes[rank]));
      return false;
    }
    std::vector<AgreedItem> items = {{"the command", arguments_.command}};
    for (const Key& key : configuration_keys()) items.push_back({key.path, key.show(loaded_.configuration)});
    check_same(world_.control(), items);
    for (const ConfigMistake& key : loaded_.left_over) {
      if (first()) print_error(fmt::format("{}: {}\n", key.place, key.message));
    }
    return true;
  }

  std::vector<Listener> listeners(const fs::path& run_dir = {}) const {
    return make_sinks({.quiet = arguments_.quiet,
                       .every_steps = loaded_.configuration.log.every_steps,
                       .run_dir = run_dir,
                       .loaded = &loaded_,
                       .world = &world_,
                       .as_typed = arguments_.as_typed});
  }

  // Of a command that measures, without a folder.
  Session make_session(SessionFor purpose = SessionFor::training) const {
    return {loaded_.configuration, world_, listeners(), {.strict = arguments_.strict, .purpose = purpose}};
  }

  // What is said beside a session.
  EventStream make_events() const {
    return {world_.rank(), listeners(), arguments_.strict ? Fallbacks::refused : Fallbacks::said};
  }

  void write_json(const std::string& document) const {
    if (first() && !arguments_.json_file.empty()) write_output(arguments_.json_file, document + "\n");
  }

  int after_writing(const std::string& document) const {
    write_json(document);
    return code(ExitCode::done);
  }

  // On rank 0, which alone writes there.
  std::optional<RunFolder> claim_run_folder() const {
    std::optional<RunFolder> folder;
    std::optional<comm::LongWork> waiting;  // another machine's lock is watched for a while
    if (first()) waiting.emplace(world_.control(), "looking for the run's folder", k_longest_wait_for_a_lock);
    agree_on_rank_0(world_.control(), [&] {
      folder.emplace(RunFolder::claim(loaded_, fs::path(arguments_.config_file).stem().string(),
                                      arguments_.resume ? Named::first_start : Named::every_start));
    });
    if (folder && !folder->said().empty() && !arguments_.quiet) print_out(fmt::format("{}\n", folder->said()));
    return folder;
  }

  // --plan FILE, which rank 0 reads for all.
  void repeat_plan(Session& session) const {
    const std::string& file = arguments_.plan_file;
    if (file.empty()) return;
    std::string text;
    agree_on_rank_0(world_.control(), [&] { text = to_json(parse_epoch_plan(read_file(file), file)); });
    session.use_plan(parse_epoch_plan(comm::broadcast_text(world_.control(), text, 0), file), file);
  }

  void go_on_with_its_own(const std::optional<RunFolder>& folder) {
    std::int64_t its_own = folder && folder->has_begun_from_named() ? 1 : 0;
    world_.control().broadcast(&its_own, sizeof(its_own), 0);
    if (its_own != 0) loaded_.configuration.checkpoint.resume = ResumeMode::automatic;
  }

  int train() {
    agree_on_rank_0(world_.control(), [&] { check_told_programs(loaded_.configuration.log.sinks); });
    const std::optional<RunFolder> folder = claim_run_folder();
    const fs::path run_dir = comm::broadcast_text(world_.control(), folder ? folder->path().string() : "", 0);
    go_on_with_its_own(folder);
    world_.watchdog().on_incident([run_dir](const comm::Incident& incident) { write_incident(incident, run_dir); });
    const HeldFolder held(run_dir);
    TrainResult result;
    {
      Session session(loaded_.configuration, world_, listeners(run_dir),
                      {.strict = arguments_.strict,
                       .run_dir = run_dir,
                       .was_complete = folder && state_of(folder->path()) == FolderState::complete,
                       .accepted = [&] { folder->begin(); },
                       .timeline_file = arguments_.timeline_file,
                       .why_not_write = [&](FolderUse use) { return held.why_not_write(use); },
                       .tell_of_loss = [&](const std::string& line) { write_loss(world_.rank(), line, run_dir); },
                       .stop_requested = stop_});
      repeat_plan(session);
      result = session.train();
    }
    const std::string document = to_json(result);
    write_json(document);
    if (!folder) return code(result.stopped_by_signal ? ExitCode::stopped_by_signal : ExitCode::done);
    if (!result.stopped_by_signal) folder->complete(document + "\n");
    if (loaded_.configuration.log.report) {
      const comm::LongWork drawing(world_.control(), "drawing the run's report");
      leave_report(run_dir, result.stopped_by_signal ? LeaveReport::where_quick : LeaveReport::always);
    }
    world_.control().set_activity("saying what the run came to");  // to a reader who may pause, while others wait
    print_result(result);
    return code(result.stopped_by_signal ? ExitCode::stopped_by_signal : ExitCode::done);
  }

  void print_result(const TrainResult& result) const {
    if (result.stopped_by_signal) {
      const bool goes_on = arguments_.resume || loaded_.configuration.checkpoint.resume == ResumeMode::automatic;
      print_out(fmt::format("stopped after step {}, saved in {}; to go on{}: {}{}\n", result.steps, result.run_dir,
                            world_.size() > 1 ? ", started as before" : "", arguments_.as_typed,
                            goes_on ? "" : " --resume"));
      return;
    }
    print_out(result_text(result));
  }

  int probe() { return after_writing(to_json(make_session().probe())); }

  int plan() {
    Session session = make_session();
    const EpochPlan& made = session.plan();
    write_json(to_json(made));
    EventStream events = make_events();
    if (first()) write_plan_page(arguments_, made, events);
    return code(ExitCode::done);
  }

  // Planning needs no other rank: the first does it.
  int plan_from_profile() {
    EventStream events = make_events();
    std::string document;
    agree_on_rank_0(world_.control(), [&] {
      document =
          plan_without_devices(arguments_, loaded_.configuration, count_samples(loaded_.configuration.data), events);
    });
    return after_writing(document);
  }

  int verify() {
    agree_on_rank_0(world_.control(), [&] { check_gradient_file(arguments_, loaded_.configuration); });
    Session session = make_session();
    repeat_plan(session);
    const VerifyReport report = session.verify({arguments_.tolerance, arguments_.gradient_file});
    write_json(to_json(report));
    if (first()) print_out(verify_text(report));
    return code(report.pass ? ExitCode::done : ExitCode::verification_failed);
  }

  int evaluate() {
    Session session = make_session(SessionFor::evaluation);
    const EvaluationResult result = session.evaluate(arguments_.checkpoint, weights_choice(arguments_.weights));
    write_json(to_json(result));
    if (!first()) return code(ExitCode::done);
    print_out(fmt::format("validation loss {:.6f}{} over {} samples\n{}", result.loss, metrics_text(result),
                          result.samples, classes_text(result)));
    return code(ExitCode::done);
  }

  int predict() {
    EventStream events = make_events();
    return after_writing(predict_outputs(arguments_, loaded_.configuration, world_, events));
  }

  const Arguments& arguments_;
  comm::World& world_;
  const std::atomic<int>* stop_;
  LoadedConfig loaded_;
};

// LibTorch's errors end in a stack trace that nobody asked for.
std::string first_words(const std::exception& error) {
  const std::string text = words_of(error);
  return text.substr(0, text.find("\nException raised from"));
}

// A launcher ends the other ranks as soon as one has ended with another code than 0: each writes its log's end before
// any can have.
int leave(comm::World& world, int exit_code) {
  end_log(exit_code);
  const bool another_failed = exit_code == code(ExitCode::peer_failed) && world.size() > 1;
  world.close();
  if (another_failed && world.launcher().launcher == "mpirun") let_the_failed_rank_end_first();
  return exit_code;
}

int run_in(comm::World& world, const Arguments& arguments, const std::atomic<int>* stop) {
  try {
    return leave(world, Program(arguments, world, stop).run());
  } catch (const AgreedError& error) {
    if (world.rank() == 0) print_error(fmt::format("onebatch: {}\n", error.what()));
    return leave(world, code(error.code()));
  } catch (const std::exception& error) {
    if (world.size() > 1) world.control().abort(first_words(error), code(exit_code_of(error)));
    print_error(fmt::format("onebatch: {}\n", first_words(error)));
    return code(exit_code_of(error));
  }
}

}  // namespace

int run(const Arguments& arguments) {
  register_built_in_kinds();
  if (const std::optional<int> done = run_alone(arguments)) return *done;
  const bool saves = arguments.command == "train";
  comm::say_failures_by(print_error);
  if (!saves) stop_listening_for_signals();
  comm::note_crashes_and_requests();
  std::unique_ptr<comm::World> world;
  try {
    if (!arguments.log_folder.empty()) begin_log(arguments.log_folder, arguments.as_typed);
    log_first_line();
    // At once, where nobody can be left waiting: mpirun ends the others.
    const comm::LauncherView view = comm::read_launcher();
    if (view.size == 1 || (view.launcher == "mpirun" && view.rank == 0)) check_written_files(arguments);
    world = comm::World::create(timeout_seconds_of(arguments));
  } catch (const std::exception& error) {
    print_error(fmt::format("onebatch: {}\n", error.what()));
    return code(exit_code_of(error));
  }
  world->watchdog().on_incident([](const comm::Incident& incident) { write_incident(incident, {}); });
  const bool gives_notice = world->size() == 1 || world->launcher().launcher == "slurm";
  if (saves) listen_for_stop_signals(gives_notice ? SignalScope::alone : SignalScope::ranks);
  return run_in(*world, arguments, stop_signal_flag());
}

}  // namespace onebatch::launch
