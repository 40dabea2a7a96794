#include "trainer/run/session.hpp"
#include "trainer/step/graph_step.hpp"

#include "comm/long_work.hpp"
#include "trainer/base/error.hpp"
#include "trainer/base/fault_point.hpp"
#include "trainer/base/version.hpp"
#include "trainer/checkpoint/run_checkpoint.hpp"
#include "trainer/data/augment.hpp"
#include "trainer/device/agreement.hpp"
#include "trainer/device/precision.hpp"
#include "trainer/io/durable_file.hpp"
#include "trainer/models/model_kind.hpp"
#include "trainer/probe/memory_use.hpp"
#include "trainer/replica/output_check.hpp"
#include "trainer/replica/replica_state.hpp"
#include "trainer/run/built_in_kinds.hpp"
#include "trainer/run/communication.hpp"
#include "trainer/run/loop.hpp"
#include "trainer/run/model_checks.hpp"
#include "trainer/run/verify.hpp"
#include "trainer/step/capture_check.hpp"
#include "trainer/step/evaluation.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <functional>

namespace onebatch {
namespace {

constexpr double k_mebibyte = 1024.0 * 1024.0;

void check_batch(const Configuration& configuration, const Dataset& data) {
  const auto& batch = configuration.batch;
  if (batch.last_batch == LastBatch::drop && batch.global_batch_size > data.size()) {
    throw UserError("batch.last_batch = \"drop\" leaves nothing: the data has " + std::to_string(data.size()) +
                    " samples, batch.global_batch_size is " + std::to_string(batch.global_batch_size) +
                    "; write a smaller batch, or last_batch = \"exact\"");
  }
}

// How many summands stay exact: see Note [Bitwise].
void check_grain(const Configuration& configuration) {
  if (configuration.run.deterministic != Determinism::bitwise) return;
  const std::int64_t batch = configuration.batch.global_batch_size;
  const std::int64_t least = (batch + ReproducibleSum::k_most_calls - 1) / ReproducibleSum::k_most_calls;
  if (configuration.batch.micro_batch_size.at(0) < least)
    throw UserError("run.deterministic = \"bitwise\" sums up to " + std::to_string(ReproducibleSum::k_most_calls) +
                    " micro-batches: write batch.micro_batch_size = " + std::to_string(least) + " or more");
}

}  // namespace

struct Session::State {
  State(Configuration given, comm::World& world_, Observer& observer_, SessionOptions options_)
      : configuration(std::move(given)), world(world_), observer(observer_), options(std::move(options_)) {
    register_built_in_kinds();
    world.set_timeout_seconds(configuration.comm.timeout_seconds);
    agree(world.control(), [&] {
      const comm::LongWork reading(world.control(), "opening data and device");
      open();
    });
    check_same(world.control(), common_ground());
    place_threads(configuration, *device, world.control());
    if (configuration.run.deterministic == Determinism::bitwise)
      check_same(world.control(), {{"the number of threads (OMP_NUM_THREADS)", std::to_string(at::get_num_threads())}});
    talk.emplace(configuration, *device, world, observer);
    world.set_activity("the first forward of the model, on the host");
    examination = examine_for_all(configuration, *data, talk->control(), observer);
    std::byte* storage = gradient_storage();
    world.set_activity("making the model");
    agree(talk->control(), [&] { make_replica(storage); });
    agree(talk->control(), [&] {
      if (!has_to_settle(replica->loss, *data)) check_outputs(*replica, *data);  // else its constructor has
    });
    settle_padding(configuration, *data, *replica, talk->control(), observer);
    if (configuration.batch_norm.mode != BatchNormMode::local && !replica->has_batch_statistics) {
      if (world.control().rank() == 0)
        observer.info("the model has no BatchNorm with statistics of its batch: batch_norm.mode changes nothing");
      configuration.batch_norm.mode = BatchNormMode::local;
    }
    if (world.control().rank() == 0) warn_of_short_parameters(configuration.precision, observer);
    const bool bitwise = configuration.run.deterministic == Determinism::bitwise;
    if (bitwise && replica->has_batch_statistics && configuration.batch_norm.mode != BatchNormMode::exact)
      throw AgreedError(ExitCode::user_error,
                        "run.deterministic = \"bitwise\": local and synchronised BatchNorm's running statistics depend on who computes "
                        "what: write batch_norm.mode = \"exact\", or batch_norm.frozen = true");
    world.set_activity("taking the model apart");
    const bool may_recompute = configuration.memory.recompute == Recompute::automatic;
    if (replica->runner || may_recompute) agree_on_rank_0(talk->control(), [&] { check_capture(configuration, *data, examination); });
    // Replicas are one model from the first step on, also where unlike machines have drawn unlike initial weights.
    broadcast_tensors(live_tensors(*replica), talk->control());
    reducer.emplace(talk->carrier(), talk->queue(), replica->gradients, *device,
                    ReducerOptions{.bucket_cap_bytes = static_cast<std::int64_t>(configuration.comm.bucket_cap_mb * k_mebibyte),
                                   .overlap = talk->overlap(),
                                   .wire_type = wire_type(),
                                   .timeline = timeline()});
    replica->timeline = timeline();
    replica->control = &talk->control();
    plans.emplace(configuration, *replica, *data, *reducer, talk->control(), observer);
  }

  ~State() {
    if (charged_bytes > 0) device->charge(-charged_bytes);
    world.set_activity("");
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // What may fail on one rank alone: files, device, memory.
  void open() {
    fault_point("start", 0);
    const std::uint64_t seed = configuration.run.seed;
    std::optional<std::int64_t> ignored;
    if (targets_of(configuration.loss) == Targets::classes) ignored = configuration.loss.ignore_index;
    data = open_dataset(configuration.data.train, Split::train, seed, ignored);
    check_targets(configuration.loss, *data, num_outputs(configuration, *data), "data");
    check_batch(configuration, *data);
    check_augmentation(configuration.data.augment, *data);
    check_grain(configuration);
    const auto folder = options.timeline_file.parent_path();
    if (!folder.empty() && !std::filesystem::is_directory(folder))
      throw UserError("--timeline " + options.timeline_file.string() + ": there is no folder " + folder.string());
    if (configuration.data.validation) {
      validation = open_dataset(*configuration.data.validation, Split::validation, seed, ignored);
      check_targets(configuration.loss, *validation, num_outputs(configuration, *data), "data.validation");
      if (validation->sample_shape() != data->sample_shape())
        throw UserError("a sample of data.validation has another shape than one of the training data");
    }
    device = bind_device({.choice = configuration.run.device,
                          .rank = world.rank(),
                          .node_local_rank = world.node_local_rank(),
                          .node_local_size = world.node_local_size(),
                          .allow_shared_device = configuration.comm.allow_shared_device,
                          .simulate = configuration.simulate});
    set_up_arithmetic(configuration);
    if (const std::string notice = model_notice(configuration.model); !notice.empty() && world.rank() == 0) observer.info(notice);
    or_does_not_fit(
        [&] { model = make_model_for(configuration, *data, device->device(), scalar_type(configuration.precision.parameters)); });
    for (const auto& [name, tensor] : model->parameters()) parameters_bytes += static_cast<std::int64_t>(tensor.nbytes());
  }

  // What must be the same everywhere before ranks may compute together.
  std::vector<AgreedItem> common_ground() const {
    std::vector<AgreedItem> items = {{"onebatch", k_version},
                                     {"LibTorch", TORCH_VERSION},
                                     {"MPI", comm::mpi_version()},
                                     {"NCCL", comm::nccl_version()},
                                     {"the device's kind (run.device)", device->device().is_cuda() ? "cuda" : "cpu"},
                                     {"the number of training samples", std::to_string(data->size())}};
    for (const auto& [name, tensor] : model->parameters()) {
      std::string shape;
      for (const std::int64_t size : tensor.sizes()) shape += (shape.empty() ? "" : ", ") + std::to_string(size);
      items.push_back({"the parameter " + name, "[" + shape + "] of " + c10::toString(tensor.scalar_type())});
    }
    return items;
  }

  Timeline* timeline() { return options.timeline_file.empty() ? nullptr : &spans; }

  // Ranks' clocks have nothing in common across hosts: what they show as they leave the same barriers does.
  void write_timeline() {
    constexpr int k_rounds = 15;
    comm::Communicator& control = talk->control();
    std::vector<double> ahead;
    for (int i = 0; i < k_rounds; ++i) {
      control.barrier();
      const double mine = std::chrono::duration<double>(Timeline::Clock::now().time_since_epoch()).count();
      double first = mine;
      control.broadcast(&first, sizeof(first), 0);
      ahead.push_back(mine - first);
    }
    std::nth_element(ahead.begin(), ahead.begin() + k_rounds / 2, ahead.end());
    double zero = first_moment;
    control.broadcast(&zero, sizeof(zero), 0);
    const Timeline::Clock::time_point own_zero{
        std::chrono::duration_cast<Timeline::Clock::duration>(std::chrono::duration<double>(zero + ahead[k_rounds / 2]))};
    const std::string name = "rank " + std::to_string(world.rank()) + ": " + device->name();
    const auto all = comm::all_gather_text(control, spans.events(world.rank(), name, own_zero));
    agree_on_rank_0(control, [&] { write_text_atomically(options.timeline_file, trace_document(all)); });
    if (world.rank() != 0) return;
    if (spans.dropped() > 0) observer.warn("the timeline holds the first " + std::to_string(Timeline::k_most_spans) + " spans only");
    observer.info("the timeline is in " + options.timeline_file.string() + ": open it in https://ui.perfetto.dev");
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

  std::size_t summed_bytes() const { return FlatGradients::bytes_needed(model->parameters(), gradient_options(configuration, nullptr)); }

  // Host memory in which the ranks of a node sum each other's gradients where they lie; none where the gradient itself does not travel.
  std::byte* gradient_storage() {
    if (device->device().is_cuda() || world.size() == 1 || wire_type() != summed_type()) return nullptr;
    std::byte* storage = talk->control().allocate(summed_bytes());
    if (!world.why_not_shared().empty() && world.rank() == 0)
      observer.fallback("reducing gradients in shared memory", "copies: " + world.why_not_shared());
    return storage;
  }

  void make_replica(std::byte* storage) {
    or_does_not_fit([&] {
      const auto bytes = static_cast<std::int64_t>(summed_bytes());
      if (storage != nullptr) {
        device->charge(bytes);
        charged_bytes = bytes;
      }
      const Examination* seen = examination.examined ? &examination : nullptr;
      replica = std::make_unique<Replica>(configuration, *data, *device, std::move(model), storage, seen);
      choose_runner(configuration, *replica);
    });
  }

  // How much those take, once the model is known.
  std::string standing_text() const {
    if (parameters_bytes == 0) return {};
    MemoryUse memory;
    memory.parameters_bytes = memory.gradients_bytes = parameters_bytes;
    memory.optimizer_bytes = parameters_bytes * states_per_parameter(configuration.optimizer);
    return " (" + memory_text(memory) + ")";
  }

  void or_does_not_fit(const std::function<void()>& make) const {
    std::string too_large;
    try {
      make();
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error)) throw;
      too_large = device->name() + " (limit " + amount(static_cast<double>(device->memory_limit_bytes())) +
                  ") cannot even hold the model's parameters, gradients and optimizer state" + standing_text() +
                  "; use a smaller model, optimizer.kind = \"sgd\" without momentum, or a device with more memory";
    }
    if (!too_large.empty()) throw DoesNotFitError(too_large);
  }

  Configuration configuration;
  comm::World& world;
  Observer& observer;
  SessionOptions options;
  Timeline spans;
  std::int64_t charged_bytes = 0;  // of the gradient's storage
  std::int64_t parameters_bytes = 0;
  double first_moment = std::chrono::duration<double>(Timeline::Clock::now().time_since_epoch()).count();
  std::unique_ptr<Dataset> data;
  std::unique_ptr<Dataset> validation;
  std::unique_ptr<ComputeDevice> device;
  std::unique_ptr<Model> model;  // until the replica has it
  std::optional<Communication> talk;
  Examination examination;
  std::unique_ptr<Replica> replica;
  std::optional<GradientReducer> reducer;
  std::optional<RunPlans> plans;
};

namespace {

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

Session::Session(Configuration configuration, comm::World& world, Observer& observer, SessionOptions options)
    : state_(std::make_unique<State>(std::move(configuration), world, observer, std::move(options))) {}

Session::~Session() = default;

const ClusterProfile& Session::probe() {
  return state_->plans->profile();
}

const EpochPlan& Session::plan() {
  return state_->plans->epoch_plan();
}

void Session::use_profile(ClusterProfile profile) {
  state_->plans->use_profile(std::move(profile));
}

void Session::use_plan(EpochPlan plan, const std::string& origin) {
  state_->plans->repeat_plan(std::move(plan), origin);
}

TrainResult Session::train() {
  State& s = *state_;
  refuse_or_say(s.examination, s.configuration, s.talk->control(), s.observer);
  TrainingLoop loop({.configuration = s.configuration,
                     .options = s.options,
                     .replica = *s.replica,
                     .data = *s.data,
                     .validation = s.validation.get(),
                     .reducer = *s.reducer,
                     .control = s.talk->control(),
                     .observer = s.observer,
                     .plans = *s.plans,
                     .world = s.world,
                     .draws_unkeyed = !s.examination.examined || s.examination.has(Trait::draws_unkeyed)});
  TrainResult result = ends_as_does_not_fit([&] { return loop.run(); });
  if (s.timeline() != nullptr) s.write_timeline();
  s.talk->close();
  return result;
}

VerifyReport Session::verify(const VerifyOptions& options) {
  State& s = *state_;
  VerifyReport report =
      verify_gradient({s.configuration, *s.replica, *s.data, s.validation.get(), *s.reducer, s.talk->control(), *s.plans}, options);
  s.talk->close();
  return report;
}

EvaluationResult Session::evaluate(const std::filesystem::path& checkpoint) {
  State& s = *state_;
  if (!s.validation)
    throw AgreedError(ExitCode::user_error,
                      "eval needs validation data: write [data.validation] (data.kind = \"idx\" then takes the t10k-* files, "
                      "\"safetensors\" needs its path)");
  std::vector<std::string> refused;
  const auto chosen = choose_checkpoint({}, checkpoint, refused, s.talk->control());
  load_model(chosen, *s.replica, s.talk->control());
  return onebatch::evaluate({}, *s.replica, *s.validation, s.talk->control());
}

}  // namespace onebatch
