#include "trainer/run/communication.hpp"

#include <cstdlib>

namespace onebatch {
namespace {

// The watchdog tells more of a collective that never ends than NCCL's own deadline can, so that comes later.
constexpr double k_after_the_watchdog_seconds = 10.0;

// NCCL refuses two ranks on one GPU where it takes them for ranks of one host. Checks on a single card say that they
// are not (NCCL_HOSTID, another one for each rank): nobody gets it by chance, and it is of no use but there.
bool takes_ranks_for_other_hosts(const Configuration& configuration) {
  return configuration.comm.backend == CommBackend::nccl && std::getenv("NCCL_HOSTID") != nullptr;
}

// NCCL where every rank has a GPU of its own; else host memory. What was asked for and cannot be had is said.
bool choose_nccl(const Configuration& configuration, const ComputeDevice& device, const comm::World& world,
                 EventStream& events) {
  const CommBackend asked = configuration.comm.backend;
  const bool shared = configuration.comm.allow_shared_device && !takes_ranks_for_other_hosts(configuration);
  const bool on_gpus = device.device().is_cuda();
  const bool possible = on_gpus && comm::built_with_nccl() && world.size() > 1 && !shared;
  if (world.size() == 1) return false;
  if (asked == CommBackend::nccl && !possible) {
    events.fallback("comm.backend = \"nccl\"",
                    on_gpus ? "mpi through pinned host memory, since NCCL takes no two ranks on one GPU"
                            : "mpi, since the ranks compute on the CPU");
  } else if (on_gpus && shared) {
    events.info("the gradient goes through pinned host memory, since ranks may share a GPU (comm.allow_shared_device)");
  }
  return possible && asked != CommBackend::mpi;
}

}  // namespace

Communication::Communication(const Configuration& configuration, const ComputeDevice& device, comm::World& world,
                             EventStream& events)
    : world_(world) {
  const Switch asked = configuration.comm.overlap;
  const bool overlap =
      world.size() > 1 && (asked == Switch::on || (asked == Switch::automatic && device.device().is_cuda()));
  queue_ = std::make_unique<comm::CollectiveQueue>(overlap ? comm::CollectiveQueue::Thread::own
                                                           : comm::CollectiveQueue::Thread::callers);
  if (overlap) queued_ = std::make_unique<comm::QueuedCommunicator>(world.control(), *queue_);
  if (!choose_nccl(configuration, device, world, events)) return;
  const comm::NcclOptions options{.cuda_device = device.device().index(),
                                  .timeout_seconds = configuration.comm.timeout_seconds + k_after_the_watchdog_seconds,
                                  .deterministic = configuration.run.deterministic == Determinism::on};
  queue_->post([&] { nccl_ = comm::create_nccl_communicator(world_, options); });
  queue_->wait();
}

void Communication::close() {
  if (!nccl_) return;
  queue_->post([this] { nccl_->close(); });
  queue_->wait();
}

}  // namespace onebatch
