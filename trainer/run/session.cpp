#include "trainer/run/session.hpp"
#include "trainer/step/graph_step.hpp"

#include "comm/long_work.hpp"
#include "trainer/base/error.hpp"
#include "trainer/checkpoint/run_checkpoint.hpp"
#include "trainer/data/pipe_command.hpp"
#include "trainer/device/agreement.hpp"
#include "trainer/device/precision.hpp"
#include "trainer/events/csv_writer.hpp"
#include "trainer/events/step_writer.hpp"
#include "trainer/events/tensorboard_writer.hpp"
#include "trainer/models/exported.hpp"
#include "trainer/models/layout.hpp"
#include "trainer/replica/output_check.hpp"
#include "trainer/replica/replica_state.hpp"
#include "trainer/run/built_in_kinds.hpp"
#include "trainer/run/channels_last.hpp"
#include "trainer/run/communication.hpp"
#include "trainer/run/compiled_run.hpp"
#include "trainer/run/graphs_of_run.hpp"
#include "trainer/run/identity.hpp"
#include "trainer/run/loop.hpp"
#include "trainer/run/model_checks.hpp"
#include "trainer/run/opened_run.hpp"
#include "trainer/run/run_timeline.hpp"
#include "trainer/run/skipped_files.hpp"
#include "trainer/run/verify.hpp"
#include "trainer/step/capture_check.hpp"
#include "trainer/step/evaluation.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <functional>
#include <set>
#include <utility>

namespace onebatch {
namespace {

constexpr double k_mebibyte = 1024.0 * 1024.0;

}  // namespace

struct Session::State {
  State(Configuration given, comm::World& world_, EventStream& events_, SessionOptions options_)
      : configuration(std::move(given)), world(world_), events(events_), options(std::move(options_)) {
    register_built_in_kinds();
    write_steps_where_kept();
    world.set_timeout_seconds(configuration.comm.timeout_seconds);
    const Switch order = std::exchange(configuration.precision.channels_last, Switch::off);
    open();
    communication.emplace(configuration, *opened->device, world, events);
    world.set_activity("the first forward of the model, on the host");
    examination = examine_for_all(configuration, *opened->data, communication->control());
    settle_layout(order);
    make_replica();
    warn_of_unexamined(examination, events);
    settle_padding(configuration, *opened->data, *replica, communication->control(), events);
    settle_batch_norm();
    warn_of_short_parameters(configuration.precision, events);
    world.set_activity("taking the model apart");
    // Native code that is named does it by itself.
    const bool may_recompute =
        configuration.memory.recompute == Recompute::automatic && compiled_folder(configuration.model).empty();
    if (runner->apart() != nullptr || may_recompute)
      agree_on_rank_0(communication->control(), [&] { check_capture(configuration, *opened->data, examination); });
    connect();
    use_compiled({configuration, *opened->data, *runner, communication->control(), events, options});
    graphs = graphs_of_run(configuration, *runner, examination, communication->control(), events);
    plans.emplace(PlanningParts{configuration, *replica, *runner, *opened->data, *reducer, communication->control(),
                                events, graphs.get()});
  }

  ~State() {
    if (communication) communication->give_up();
    if (charged_bytes > 0) opened->device->charge(-charged_bytes);
    world.set_activity("");
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  TrainResult train();
  VerifyReport verify(const VerifyOptions& verify_options);
  EvaluationResult evaluate(const std::filesystem::path& checkpoint, WeightsChoice weights);

  // Each rank by itself, until all have what they need to compute together.
  void open() {
    const auto gpus = gpus_of_ranks(configuration, world.control());
    agree(world.control(), [&] {
      const comm::LongWork reading(world.control(), "opening data and device",
                                   patience_with_commands(configuration.data));
      opened.emplace(configuration, world, options, events, gpus);
    });
    check_same(world.control(), opened->agreed_items());
    if (const std::string about = opened->data->warning(); !about.empty()) events.warn("data: " + about);
    const bool own = configuration.data.sampling.validation_fraction <= 0.0;
    if (own && opened->validation && !opened->validation->warning().empty())
      events.warn("data.validation: " + opened->validation->warning());
    place_threads(configuration, *opened->device, world.control());
    if (configuration.run.deterministic == Determinism::bitwise)
      check_same(world.control(), {{"the number of threads (OMP_NUM_THREADS)", fmt::to_string(at::get_num_threads())}});
  }

  void write_steps_where_kept() {
    const auto& dir = options.run_dir;
    const LogConfiguration& log = configuration.log;
    if (dir.empty()) return;
    events.listen(write_steps(log.jsonl ? dir / "metrics.jsonl" : "", log.samples ? dir / "samples.jsonl" : ""));
    if (log.jsonl) events.listen(write_validations(dir / "validation.jsonl"));
    if (log.csv) events.listen(write_csv(dir / "metrics.csv", dir / "validation.csv"));
    if (log.tensorboard) events.listen(write_tensorboard(dir / "tensorboard"));
  }

  // What ranks sum.
  at::ScalarType summed_type() const {
    const GradientOptions gradient = gradient_options(configuration, nullptr);
    return gradient.reproducible ? at::kDouble : gradient.type;
  }

  // What travels: sixteen bits are too few to sum ranks in, but as the user asks.
  at::ScalarType wire_type() const {
    const at::ScalarType type = summed_type();
    if (type == at::kFloat && configuration.comm.reduce_dtype == ReduceType::bfloat16) return at::kBFloat16;
    return at::isReducedFloatingType(type) ? at::kFloat : type;
  }

  std::size_t summed_bytes() const {
    return FlatGradients::bytes_needed(opened->model->parameters(), gradient_options(configuration, nullptr));
  }

  // Host memory in which the ranks of a node sum each other's gradients where they lie; none where the gradient itself
  // does not travel.
  std::byte* gradient_storage() {
    if (opened->device->device().is_cuda() || world.size() == 1 || wire_type() != summed_type()) return nullptr;
    std::byte* storage = communication->control().allocate(summed_bytes());
    say_whether_copied();
    return storage;
  }

  // Of memory that was asked for just now; on all ranks alike.
  void say_whether_copied() {
    if (!opened->device->device().is_cuda() && !world.why_not_shared().empty())
      events.fallback("reducing gradients in shared memory", "copies: " + world.why_not_shared());
  }

  void make_replica() {
    std::byte* storage = gradient_storage();
    world.set_activity("making the model");
    agree(communication->control(), [&] { make_replica_in(storage); });
    agree(communication->control(), [&] {
      if (!has_to_settle(replica->loss, *opened->data))
        check_outputs(*replica, *opened->data, configuration);  // else its constructor has
    });
  }

  void make_replica_in(std::byte* storage) {
    opened->refuse_if_out_of_memory([&] {
      const auto bytes = static_cast<std::int64_t>(summed_bytes());
      if (storage != nullptr) {
        opened->device->charge(bytes);
        charged_bytes = bytes;
      }
      const Examination* seen = examination.examined ? &examination : nullptr;
      replica = std::make_unique<Replica>(configuration, *opened->data, *opened->device, std::move(opened->model),
                                          storage, seen);
      runner.emplace(choose_runner(configuration, *replica));
    });
  }

  // Until now the model has lain as it was made.
  void settle_layout(Switch asked) {
    configuration.precision.channels_last = asked;
    configuration.precision.channels_last = settle_channels_last(
        {configuration, *opened->data, *opened->model, *opened->device, examination}, communication->control(), events);
    if (configuration.precision.channels_last == Switch::on)
      agree(communication->control(),
            [&] { opened->refuse_if_out_of_memory([&] { put_in_channels_last(*opened->model); }); });
  }

  void settle_batch_norm() {
    if (configuration.batch_norm.mode != BatchNormMode::local && !replica->has_batch_statistics) {
      events.info("the model has no BatchNorm with statistics of its batch: batch_norm.mode changes nothing");
      configuration.batch_norm.mode = BatchNormMode::local;
    }
    const bool bitwise = configuration.run.deterministic == Determinism::bitwise;
    if (bitwise && replica->has_batch_statistics && configuration.batch_norm.mode != BatchNormMode::exact)
      throw AgreedError(ExitCode::user_error,
                        "run.deterministic = \"bitwise\": local and synchronised BatchNorm's running statistics depend "
                        "on who computes what: write batch_norm.mode = \"exact\", or batch_norm.frozen = true");
  }

  // Replicas are one model from the first step on, also where unlike machines have drawn unlike initial weights.
  void connect() {
    broadcast_tensors(live_tensors(*replica), communication->control());
    reducer.emplace(
        communication->carrier(), communication->queue(), replica->gradients, *opened->device,
        ReducerOptions{.bucket_cap_bytes = static_cast<std::int64_t>(configuration.comm.bucket_cap_mb * k_mebibyte),
                       .overlap = communication->overlap(),
                       .wire_type = wire_type(),
                       .timeline = timeline.spans()});
    say_whether_copied();  // where another type travels, the reducer has asked
    replica->timeline = timeline.spans();
    replica->control = &communication->control();
  }

  Configuration configuration;
  comm::World& world;
  EventStream& events;
  SessionOptions options;
  RunTimeline timeline{options.timeline_file, events};
  std::int64_t charged_bytes = 0;  // of the gradient's storage
  std::optional<OpenedRun> opened;
  std::optional<Communication> communication;
  Examination examination;
  std::unique_ptr<Replica> replica;
  std::optional<MicroBatchRunner> runner;
  std::unique_ptr<StepGraphs> graphs;
  std::optional<GradientReducer> reducer;
  std::optional<RunPlans> plans;
};

namespace {

// Whatever ends a session is an event of the rank on which it does.
template <typename Work>
decltype(auto) telling_of_failure(EventStream& events, const Work& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    events.send(event::Failed{exit_code_of(error), words_of(error)});
    throw;
  }
}

// Out-of-memory where ranks do not agree upon what they do, as in the optimizer, ends the run as it does elsewhere.
TrainResult ends_as_does_not_fit(const std::function<TrainResult()>& train) {
  std::string words;
  try {
    return train();
  } catch (const AgreedError&) {
    throw;
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    words = words_of(error);
  }
  throw DoesNotFitError(words);
}

}  // namespace

TrainResult Session::State::train() {
  refuse_or_say(examination, configuration, communication->control(), events);
  TrainingLoop loop({.configuration = configuration,
                     .options = options,
                     .replica = *replica,
                     .runner = *runner,
                     .data = *opened->data,
                     .readers_data = opened->data,
                     .validation = opened->validation.get(),
                     .drawing = opened->drawing,
                     .given_samples = opened->given_samples,
                     .reducer = *reducer,
                     .control = communication->control(),
                     .events = events,
                     .plans = *plans,
                     .world = world,
                     .graphs = graphs.get(),
                     .draws_unkeyed = !examination.examined || examination.has(Trait::draws_unkeyed)});
  TrainResult result = ends_as_does_not_fit([&] { return loop.run(); });
  if (timeline.spans() != nullptr) timeline.write(communication->control(), opened->device->name());
  communication->close();
  events.send(event::Ended{result});
  return result;
}

VerifyReport Session::State::verify(const VerifyOptions& verify_options) {
  VerifyReport report = verify_gradient({configuration, *replica, *runner, *opened->data, opened->validation.get(),
                                         opened->drawing, *reducer, communication->control(), *plans, graphs.get()},
                                        verify_options);
  communication->close();
  return report;
}

EvaluationResult Session::State::evaluate(const std::filesystem::path& checkpoint, WeightsChoice weights) {
  if (!opened->validation)
    throw AgreedError(ExitCode::user_error,
                      "eval needs [data.validation]; fraction = 0.1 there takes a part of the training data");
  const auto chosen = choose_checkpoint({}, checkpoint, events, communication->control());
  if (load_model(chosen, *replica->model, communication->control(), weights))
    events.info("with the averaged weights (optimizer.ema_decay); --weights raw takes those that were trained");
  refuse_other_classes(chosen, *opened->data, communication->control());
  warn_of_another_program(chosen, *replica->model, communication->control(), events);
  warn_of_other_split(chosen, configuration, *opened->data, opened->given_samples, communication->control(), events);
  const EvaluationRequest request{.metrics =
                                      chosen_metrics(configuration, *opened->validation, replica->loss.num_classes())};
  EvaluationResult result = onebatch::evaluate(request, *replica, *opened->validation, communication->control());
  std::set<std::string> skipped;
  name_skipped_files(*opened->validation, skipped, communication->control(), events);
  count_skipped_files(skipped, "counted for nothing", events);
  return result;
}

Session::Session(Configuration configuration, comm::World& world, std::vector<Listener> listeners,
                 SessionOptions options)
    : events_(world.rank(), std::move(listeners), options.strict ? Fallbacks::refused : Fallbacks::said),
      state_(telling_of_failure(events_, [&] {
        return std::make_unique<State>(std::move(configuration), world, events_, std::move(options));
      })) {}

Session::~Session() = default;

const ClusterProfile& Session::probe() {
  return telling_of_failure(events_, [this]() -> decltype(auto) { return state_->plans->book.profile(); });
}

const EpochPlan& Session::plan() {
  return telling_of_failure(events_, [this]() -> decltype(auto) { return state_->plans->book.epoch_plan(); });
}

void Session::use_profile(ClusterProfile profile) {
  telling_of_failure(events_, [&] { state_->plans->tables.use(std::move(profile)); });
}

void Session::use_plan(EpochPlan plan, const std::string& origin) {
  telling_of_failure(events_, [&] { state_->plans->book.repeat_plan(std::move(plan), origin); });
}

TrainResult Session::train() {
  return telling_of_failure(events_, [this] { return state_->train(); });
}

VerifyReport Session::verify(const VerifyOptions& options) {
  return telling_of_failure(events_, [&] { return state_->verify(options); });
}

EvaluationResult Session::evaluate(const std::filesystem::path& checkpoint, WeightsChoice weights) {
  return telling_of_failure(events_, [&] { return state_->evaluate(checkpoint, weights); });
}

}  // namespace onebatch
