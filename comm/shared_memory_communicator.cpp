#include "comm/shared_memory_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace onebatch::comm {
namespace {

constexpr std::size_t k_largest_chunk = std::size_t{1} << 19;
constexpr std::size_t k_smallest_chunk = std::size_t{1} << 16;

std::string no_room(std::size_t needed) {
  return fmt::format("{} on some node has no room for {} KiB (on this one: {} KiB; in a container: --shm-size 1g)",
                     shared_memory_folder(), needed >> 10, free_shared_memory_bytes() >> 10);
}

}  // namespace

SharedMemoryCommunicator::SharedMemoryCommunicator(std::unique_ptr<MpiCommunicator> world, MPI_Comm node,
                                                   Watchdog& watchdog)
    : world_(std::move(world)), watchdog_(watchdog), node_ranks_(node) {
  const Watchdog::Guard guard(watchdog_, "setting up shared memory", 0);
  MPI_Comm_rank(node, &node_rank_);
  MPI_Comm_size(node, &node_size_);
  const std::size_t chunk = agree_on_chunk();
  if (chunk == 0) node_rank_ = 0;
  if (chunk > 0 && node_size_ > 1) {
    window_ = SharedWindow::create(node, NodeReducer::bytes_needed(node_size_, chunk));
    node_.emplace(window_->data(), chunk, node_rank_, node_size_);
  }
  const int colour = node_rank_ == 0 ? 0 : MPI_UNDEFINED;
  check_mpi(MPI_Comm_split(world_->handle(), colour, rank(), &leaders_), rank(), "MPI_Comm_split");
  if (leaders_ == MPI_COMM_NULL) return;
  check_mpi(MPI_Comm_set_errhandler(leaders_, MPI_ERRORS_RETURN), rank(), "MPI_Comm_set_errhandler");
  across_.emplace(leaders_);
}

// Every rank looks before any asks for memory, and all take what the poorest node has.
std::size_t SharedMemoryCommunicator::agree_on_chunk() {
  std::size_t chunk = node_size_ == 1 ? k_largest_chunk : 0;
  for (std::size_t tried = k_largest_chunk; tried >= k_smallest_chunk && chunk == 0; tried /= 2) {
    if (shared_memory_has_room(NodeReducer::bytes_needed(node_size_, tried))) chunk = tried;
  }
  auto least = static_cast<std::int64_t>(chunk);
  world_->all_reduce(&least, 1, ScalarType::int64, ReduceOp::min);
  if (least == 0) why_not_shared_ = no_room(NodeReducer::bytes_needed(node_size_, k_smallest_chunk));
  return static_cast<std::size_t>(least);
}

void SharedMemoryCommunicator::all_reduce(void* buffer, std::size_t count, ScalarType type, ReduceOp op) {
  const Watchdog::Guard guard(watchdog_, "all_reduce", count * size_of(type));
  if (node_) node_->all_reduce(buffer, count, type, op);
  if (across_) across_->all_reduce(buffer, count, type, op);
  if (node_ && node_size_ < size()) node_->broadcast(buffer, count * size_of(type), 0);
}

void SharedMemoryCommunicator::all_gather(const void* send, void* receive, std::size_t bytes_per_rank) {
  world_->all_gather(send, receive, bytes_per_rank);
}

void SharedMemoryCommunicator::broadcast(void* buffer, std::size_t bytes, int root) {
  world_->broadcast(buffer, bytes, root);
}

void SharedMemoryCommunicator::barrier() {
  world_->barrier();
}

std::byte* SharedMemoryCommunicator::allocate(std::size_t bytes) {
  if (!why_not_shared_.empty()) return Communicator::allocate(bytes);
  const Watchdog::Guard guard(watchdog_, "allocating shared memory", bytes);
  const std::size_t each = (bytes + k_page_bytes - 1) / k_page_bytes * k_page_bytes;
  const std::size_t needed = each * static_cast<std::size_t>(node_size_);
  if (buffers_) buffers_->close();
  buffers_.reset();
  if (node_) node_->share_buffers({}, 0);
  std::int64_t fits = !node_ || shared_memory_has_room(needed) ? 1 : 0;  // a rank alone on its node makes no window
  world_->all_reduce(&fits, 1, ScalarType::int64, ReduceOp::min);
  why_not_in_place_ = fits == 1 ? "" : no_room(needed);
  if (fits == 0 || !node_) return Communicator::allocate(bytes);
  buffers_ = SharedWindow::create(node_ranks_, needed);
  std::vector<std::byte*> addresses;
  for (int i = 0; i < node_size_; ++i) addresses.push_back(buffers_->data() + static_cast<std::size_t>(i) * each);
  node_->share_buffers(addresses, each);
  return addresses[static_cast<std::size_t>(node_rank_)];
}

void SharedMemoryCommunicator::close() {
  {
    const Watchdog::Guard guard(watchdog_, "close", 0);
    if (buffers_) buffers_->close();
    if (window_) window_->close();
    if (leaders_ != MPI_COMM_NULL) check_mpi(MPI_Comm_free(&leaders_), rank(), "MPI_Comm_free");
    leaders_ = MPI_COMM_NULL;
  }
  world_->close();
}

void SharedMemoryCommunicator::abort(std::string_view reason, int exit_code) {
  world_->abort(reason, exit_code);
}

}  // namespace onebatch::comm
