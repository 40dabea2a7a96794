#include "comm/node_reducer.hpp"

#include "comm/error.hpp"
#include "comm/reduce_kernels.hpp"
#include "comm/wait_policy.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cstring>

namespace onebatch::comm {
namespace {

// Up to here everyone sums everything: one meeting of the ranks instead of two.
constexpr std::size_t k_small_bytes = 8192;
constexpr std::size_t k_piece_alignment = 64;
constexpr int k_spins = 2000;
constexpr int k_yields = 200000;  // some tenth of a second
constexpr long k_nap_nanoseconds = 50000;

void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins, then lets others run, then sleeps: a rank that waits for a slow one must not take its core. Not soon, since a
// core that was put to sleep, the more so a virtual one, computes slower for a while.
void wait_until(const std::atomic<std::uint64_t>& counter, std::uint64_t value) {
  const int yields = waits_passively() ? 0 : k_yields;
  for (int i = 0; counter.load(std::memory_order_acquire) < value; ++i) {
    if (i < k_spins) {
      pause_processor();
    } else if (i < k_spins + yields) {
      sched_yield();
    } else {
      const timespec nap{0, k_nap_nanoseconds};
      nanosleep(&nap, nullptr);
      i = k_spins + yields;
    }
  }
}

enum class Kind : std::uint64_t { all_reduce, all_reduce_in_place, broadcast };

std::uint64_t request_of(Kind kind, std::size_t count, ScalarType type, ReduceOp op) {
  return (static_cast<std::uint64_t>(count) << 12) | (static_cast<std::uint64_t>(kind) << 8) |
         (static_cast<std::uint64_t>(type) << 4) | static_cast<std::uint64_t>(op);
}

std::string words_of(std::uint64_t request) {
  const auto type = static_cast<ScalarType>((request >> 4) & 0xf);
  const auto kind = static_cast<Kind>((request >> 8) & 0xf);
  const bool broadcast = kind == Kind::broadcast;
  const std::size_t bytes = (request >> 12) * size_of(type);
  if (broadcast) return fmt::format("broadcast of {} bytes", bytes);
  return fmt::format("{} of {} bytes (type {}, operation {})",
                     kind == Kind::all_reduce ? "all_reduce" : "all_reduce in place", bytes, static_cast<int>(type),
                     request & 0xf);
}

}  // namespace

struct NodeReducer::Stage {
  std::uint64_t number;
  std::byte* data;
  std::size_t count;
  ScalarType type;
  ReduceOp op;
  std::uint64_t request;
};

std::size_t NodeReducer::bytes_needed(int size, std::size_t chunk_bytes) {
  return static_cast<std::size_t>(size) * (sizeof(RankState) + 3 * chunk_bytes);
}

NodeReducer::NodeReducer(std::byte* memory, std::size_t chunk_bytes, int rank, int size)
    : memory_(memory), chunk_bytes_(chunk_bytes), rank_(rank), size_(size), inputs_(static_cast<std::size_t>(size)) {}

NodeReducer::RankState& NodeReducer::state(int rank) const {
  return reinterpret_cast<RankState*>(memory_)[rank];
}

std::byte* NodeReducer::slot(int rank, std::uint64_t stage) const {
  const auto index = static_cast<std::size_t>(rank) * 3 + stage % 3;
  return memory_ + static_cast<std::size_t>(size_) * sizeof(RankState) + index * chunk_bytes_;
}

NodeReducer::Piece NodeReducer::piece_of(int rank, std::size_t count) const {
  const std::size_t each = (count + static_cast<std::size_t>(size_) - 1) / static_cast<std::size_t>(size_);
  const std::size_t step = (each + k_piece_alignment - 1) / k_piece_alignment * k_piece_alignment;
  const std::size_t begin = std::min(count, step * static_cast<std::size_t>(rank));
  return {begin, std::min(step, count - begin)};
}

void NodeReducer::arrive(std::uint64_t stage, std::uint64_t request, std::uint64_t offset) {
  state(rank_).request[stage % 3].store(request, std::memory_order_relaxed);
  state(rank_).offset[stage % 3].store(offset, std::memory_order_relaxed);
  state(rank_).arrived.store(stage + 1, std::memory_order_release);
}

void NodeReducer::wait_for_all(std::uint64_t stage) {
  const std::uint64_t request = state(rank_).request[stage % 3].load(std::memory_order_relaxed);
  const std::uint64_t offset = state(rank_).offset[stage % 3].load(std::memory_order_relaxed);
  for (int rank = 0; rank < size_; ++rank) {
    wait_until(state(rank).arrived, stage + 1);
    const std::uint64_t other = state(rank).request[stage % 3].load(std::memory_order_relaxed);
    const std::uint64_t other_offset = state(rank).offset[stage % 3].load(std::memory_order_relaxed);
    if (other == request && other_offset == offset) continue;
    throw CommError(rank_, "all_reduce",
                    fmt::format("the ranks do not do the same: the node's rank {} is in {} at {}, this one in {} at {}",
                                rank, words_of(other), other_offset, words_of(request), offset));
  }
}

void NodeReducer::all_reduce(void* buffer, std::size_t count, ScalarType type, ReduceOp op) {
  if (size_ == 1 || count == 0) return;
  auto* data = static_cast<std::byte*>(buffer);
  const std::size_t element = size_of(type);
  if (count * element <= std::min(k_small_bytes, chunk_bytes_)) return all_reduce_small(data, count, type, op);
  if (is_shared(data, count * element))
    return all_reduce_shared(static_cast<std::size_t>(data - shared_[static_cast<std::size_t>(rank_)]), count, type,
                             op);
  const std::uint64_t request = request_of(Kind::all_reduce, count, type, op);
  const std::size_t chunk = chunk_bytes_ / element;
  const std::uint64_t num_stages = (count + chunk - 1) / chunk;
  const auto stage = [&](std::uint64_t i) {
    const std::size_t begin = i * chunk;
    return Stage{next_stage_ + i, data + begin * element, std::min(chunk, count - begin), type, op, request};
  };
  lay_down(stage(0));
  for (std::uint64_t i = 0; i < num_stages; ++i) {
    sum_own(stage(i));
    if (i + 1 < num_stages) lay_down(stage(i + 1));
    take(stage(i));
  }
  next_stage_ += num_stages;
}

void NodeReducer::share_buffers(std::vector<std::byte*> addresses, std::size_t bytes) {
  shared_ = std::move(addresses);
  shared_bytes_ = bytes;
}

bool NodeReducer::is_shared(const std::byte* data, std::size_t bytes) const {
  if (shared_.empty()) return false;
  const std::byte* begin = shared_[static_cast<std::size_t>(rank_)];
  return data >= begin && data + bytes <= begin + shared_bytes_;
}

// Each rank sums its piece from all buffers into all buffers: the least that memory can be asked to move.
void NodeReducer::all_reduce_shared(std::size_t offset, std::size_t count, ScalarType type, ReduceOp op) {
  const std::uint64_t stage = next_stage_++;
  arrive(stage, request_of(Kind::all_reduce_in_place, count, type, op), offset);
  wait_for_all(stage);
  const Piece own = piece_of(rank_, count);
  buffers_.clear();
  for (std::byte* buffer : shared_) buffers_.push_back(buffer + offset + own.begin * size_of(type));
  reduce_in_place(buffers_, own.count, type, op);
  state(rank_).done.store(stage + 1, std::memory_order_release);
  for (int rank = 0; rank < size_; ++rank) wait_until(state(rank).done, stage + 1);
}

void NodeReducer::all_reduce_small(std::byte* data, std::size_t count, ScalarType type, ReduceOp op) {
  const std::uint64_t stage = next_stage_++;
  std::memcpy(slot(rank_, stage), data, count * size_of(type));
  arrive(stage, request_of(Kind::all_reduce, count, type, op));
  wait_for_all(stage);
  for (int rank = 0; rank < size_; ++rank) inputs_[static_cast<std::size_t>(rank)] = slot(rank, stage);
  reduce_in_order(data, inputs_, count, type, op);
  state(rank_).done.store(stage + 1, std::memory_order_release);
}

void NodeReducer::lay_down(const Stage& stage) {
  const std::size_t element = size_of(stage.type);
  const Piece own = piece_of(rank_, stage.count);
  const std::size_t after = own.begin + own.count;
  std::byte* to = slot(rank_, stage.number);
  std::memcpy(to, stage.data, own.begin * element);
  std::memcpy(to + after * element, stage.data + after * element, (stage.count - after) * element);
  arrive(stage.number, stage.request);
}

void NodeReducer::sum_own(const Stage& stage) {
  wait_for_all(stage.number);
  const Piece own = piece_of(rank_, stage.count);
  const std::size_t offset = own.begin * size_of(stage.type);
  for (int rank = 0; rank < size_; ++rank)
    inputs_[static_cast<std::size_t>(rank)] = (rank == rank_ ? stage.data : slot(rank, stage.number)) + offset;
  reduce_in_order(slot(rank_, stage.number) + offset, inputs_, own.count, stage.type, stage.op);
  state(rank_).done.store(stage.number + 1, std::memory_order_release);
}

void NodeReducer::take(const Stage& stage) {
  const std::size_t element = size_of(stage.type);
  for (int i = 0; i < size_; ++i) {
    const int rank = (rank_ + i) % size_;
    const Piece piece = piece_of(rank, stage.count);
    wait_until(state(rank).done, stage.number + 1);
    std::memcpy(stage.data + piece.begin * element, slot(rank, stage.number) + piece.begin * element,
                piece.count * element);
  }
}

void NodeReducer::broadcast(void* buffer, std::size_t bytes, int root) {
  if (size_ == 1) return;
  const std::uint64_t request = request_of(Kind::broadcast, bytes, ScalarType::uint8, ReduceOp::sum);
  auto* data = static_cast<std::byte*>(buffer);
  for (std::size_t begin = 0; begin < bytes; begin += chunk_bytes_) {
    const std::size_t count = std::min(chunk_bytes_, bytes - begin);
    const std::uint64_t stage = next_stage_++;
    if (rank_ == root) std::memcpy(slot(root, stage), data + begin, count);
    arrive(stage, request);
    wait_for_all(stage);
    if (rank_ != root) std::memcpy(data + begin, slot(root, stage), count);
    state(rank_).done.store(stage + 1, std::memory_order_release);
  }
}

}  // namespace onebatch::comm
