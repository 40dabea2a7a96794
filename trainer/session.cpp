#include "trainer/session.hpp"

#include "trainer/agreement.hpp"
#include "trainer/batch_norm/running_statistics.hpp"
#include "trainer/device/precision.hpp"
#include "trainer/error.hpp"
#include "trainer/evaluation.hpp"
#include "trainer/loop.hpp"
#include "trainer/replica_state.hpp"
#include "trainer/verify.hpp"

#include <algorithm>

namespace onebatch {
namespace {

constexpr double k_mebibyte = 1024.0 * 1024.0;
constexpr double k_reference_seconds = 24.0 * 3600.0;

// NCCL where every rank has a GPU of its own; else host memory. What was asked for and cannot be had is said.
bool choose_nccl(const Configuration& configuration, const ComputeDevice& device, comm::World& world, Observer& observer) {
  const CommBackend asked = configuration.comm.backend;
  const bool possible = device.device().is_cuda() && comm::built_with_nccl() && world.size() > 1 && !configuration.comm.allow_shared_device;
  if (asked == CommBackend::nccl && !possible && world.size() > 1 && world.rank() == 0) {
    observer.fallback("comm.backend = \"nccl\"", device.device().is_cuda() ? "mpi through host memory, since ranks may share a GPU"
                                                                           : "mpi, since the ranks compute on the CPU");
  }
  return possible && asked != CommBackend::mpi;
}

void check_batch(const Configuration& configuration, const Dataset& data) {
  const auto& batch = configuration.batch;
  if (batch.last_batch == LastBatch::drop && batch.global_batch_size > data.size()) {
    throw UserError("batch.last_batch = \"drop\" leaves nothing: the data has " + std::to_string(data.size()) +
                    " samples, batch.global_batch_size is " + std::to_string(batch.global_batch_size) +
                    "; write a smaller batch, or last_batch = \"exact\"");
  }
}

}  // namespace

struct Session::State {
  State(Configuration given, comm::World& world_, Observer& observer_, SessionOptions options_)
      : configuration(std::move(given)), world(world_), observer(observer_), options(std::move(options_)) {
    world.set_timeout_seconds(configuration.comm.timeout_seconds);
    agree(world.control(), [&] { open(); });
    share_weights();
    if (choose_nccl(configuration, *device, world, observer)) {
      nccl = comm::create_nccl_communicator(world, device->device().index(), configuration.comm.timeout_seconds);
    }
    reducer.emplace(nccl ? *nccl : world.control(), static_cast<std::int64_t>(configuration.comm.bucket_cap_mb * k_mebibyte));
    plans.emplace(configuration, *replica, *data, *reducer, world.control(), observer);
  }

  // What may fail on one rank alone: files, device, memory.
  void open() {
    const std::uint64_t seed = configuration.run.seed;
    data = open_dataset(configuration.data.train, Split::train, seed);
    check_batch(configuration, *data);
    if (configuration.data.validation) {
      validation = open_dataset(*configuration.data.validation, Split::validation, seed);
      if (validation->sample_shape() != data->sample_shape())
        throw UserError("a sample of data.validation has another shape than one of the training data");
    }
    device = bind_device({.choice = configuration.run.device,
                          .rank = world.rank(),
                          .node_local_rank = world.node_local_rank(),
                          .node_local_size = world.node_local_size(),
                          .allow_shared_device = configuration.comm.allow_shared_device,
                          .simulate = configuration.simulate});
    set_up_arithmetic(configuration, world.node_local_size());
    make_replica();
  }

  void make_replica() {
    std::string too_large;
    try {
      replica = std::make_unique<Replica>(configuration, *data, *device);
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error)) throw;
      too_large = device->name() +
                  " cannot even hold the model's parameters, gradients and optimizer state; use a smaller model, optimizer.kind = \"sgd\" "
                  "without momentum, or a device with more memory";
    }
    if (!too_large.empty()) throw DoesNotFitError(too_large);
  }

  // Replicas are one model from the first step on, also where unlike machines have drawn unlike initial weights.
  void share_weights() {
    if (world.size() == 1) return;
    for (const auto& [name, tensor] : live_tensors(*replica)) {
      auto bytes = host_bytes(tensor);
      world.control().broadcast(bytes.data(), bytes.size(), 0);
      copy_from_bytes(tensor, bytes);
    }
  }

  Configuration configuration;
  comm::World& world;
  Observer& observer;
  SessionOptions options;
  std::unique_ptr<Dataset> data;
  std::unique_ptr<Dataset> validation;
  std::unique_ptr<ComputeDevice> device;
  std::unique_ptr<Replica> replica;
  std::unique_ptr<comm::Communicator> nccl;
  std::optional<GradientReducer> reducer;
  std::optional<RunPlans> plans;
};

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

TrainResult Session::train() {
  State& s = *state_;
  TrainingLoop loop({.configuration = s.configuration,
                     .options = s.options,
                     .replica = *s.replica,
                     .data = *s.data,
                     .validation = s.validation.get(),
                     .reducer = *s.reducer,
                     .control = s.world.control(),
                     .observer = s.observer,
                     .plans = *s.plans});
  TrainResult result = loop.run();
  if (s.nccl) s.nccl->close();
  return result;
}

VerifyReport Session::verify(const VerifyOptions& options) {
  State& s = *state_;
  // Rank 0 computes the reference alone, and the others wait for it as long as that takes.
  s.world.set_timeout_seconds(std::max(s.configuration.comm.timeout_seconds, k_reference_seconds));
  VerifyReport report = verify_gradient({s.configuration, *s.replica, *s.data, *s.reducer, s.world.control(), *s.plans}, options);
  if (s.nccl) s.nccl->close();
  return report;
}

EvaluationResult Session::evaluate(const std::filesystem::path& checkpoint) {
  State& s = *state_;
  if (!s.validation) throw AgreedError(ExitCode::user_error, "eval needs validation data: write [data.validation]");
  std::vector<std::string> refused;
  const auto chosen = choose_checkpoint({}, checkpoint, refused, s.world.control());
  load_model(chosen, *s.replica, s.world.control());
  return onebatch::evaluate({}, *s.replica, *s.validation, s.world.control());
}

}  // namespace onebatch
