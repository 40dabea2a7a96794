#include "trainer/run/communication.hpp"

#include "comm/error.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <set>
#include <string>
#include <vector>

namespace onebatch {
namespace {

// The watchdog tells more of a collective that never ends than NCCL's own deadline can, so that comes later.
constexpr double k_after_the_watchdog_seconds = 10.0;

// NCCL refuses two ranks on one GPU where it takes them for ranks of one host. Checks on a single card say that they
// are not (NCCL_HOSTID, another one for each rank): nobody gets it by chance, and it is of no use but there.
bool takes_ranks_for_other_hosts(const Configuration& configuration) {
  return configuration.comm.backend == CommBackend::nccl && std::getenv("NCCL_HOSTID") != nullptr;
}

// NCCL knows a GPU by its place on the bus: parts of one (MIG) are the same to it, and it refuses them. Collective.
bool have_cards_of_their_own(const ComputeDevice& device, comm::World& world) {
  const std::string card = world.node_local_size() > 1 ? device.pci_bus_id() : "";
  auto cards = comm::all_gather_text(
      world.control(), card.empty() ? "" : fmt::format("{} {} {}", comm::host_name(), comm::boot_id(), card));
  std::erase(cards, "");
  const std::size_t number = cards.size();
  return std::set<std::string>(cards.begin(), cards.end()).size() == number;
}

// NCCL where every rank has a GPU of its own; else host memory. What was asked for and cannot be had is said.
bool choose_nccl(const Configuration& configuration, const ComputeDevice& device, comm::World& world,
                 EventStream& events) {
  if (world.size() == 1) return false;
  const CommBackend asked = configuration.comm.backend;
  const bool shared = configuration.comm.allow_shared_device && !takes_ranks_for_other_hosts(configuration);
  const bool on_gpus = device.device().is_cuda();
  const bool parts = !have_cards_of_their_own(device, world) && !takes_ranks_for_other_hosts(configuration);
  const bool possible = on_gpus && comm::built_with_nccl() && !shared && !parts;
  if (asked == CommBackend::nccl && !possible) {
    events.fallback("comm.backend = \"nccl\"",
                    on_gpus ? "mpi through pinned host memory, since NCCL takes no two ranks on one GPU"
                            : "mpi, since the ranks compute on the CPU");
  } else if (on_gpus && parts && !shared && asked != CommBackend::mpi) {
    events.info("the gradient goes through pinned host memory, since NCCL takes parts of one GPU (MIG) for one");
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

void Communication::give_up() {
  if (!nccl_) return;
  nccl_->give_up();
  try {
    queue_->wait();
  } catch (const std::exception&) {  // it was given up
  }
}

}  // namespace onebatch
