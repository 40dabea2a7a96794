// Collectives over raw buffers, whatever carries them: one process, MPI, NCCL.
#pragma once

#include "comm/aligned_memory.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace onebatch::comm {

class Watchdog;

enum class ScalarType { uint8, int32, int64, float16, bfloat16, float32, float64 };
enum class ReduceOp { sum, min, max };

/// Bytes of one element.
std::size_t size_of(ScalarType type);

/// A fixed group of ranks that call the same collectives in the same order.
///
/// Every member function but `rank`, `size`, `backend` and `abort` is collective. Buffers belong to the caller and are
/// host memory for the local and MPI implementations, memory of the bound GPU for NCCL. Every failure is a CommError
/// that names rank, host, call and place.
class Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  /// "local", "mpi" or "nccl".
  [[nodiscard]] virtual std::string_view backend() const = 0;

  /// In place; `count` elements. Every rank gets the same bits.
  virtual void all_reduce(void* buffer, std::size_t count, ScalarType type, ReduceOp op) = 0;
  /// All-reduces that do not hold up the caller, for GPU memory: `stream` is the cudaStream_t whose work so far fills
  /// the buffer. What is put on it after finish_on() sees the sums. On host memory these are all_reduce and nothing.
  /// start() and finish() belong to one thread; mark_ready() to the one that fills the buffer.
  [[nodiscard]] virtual int mark_ready(void* /*stream*/) { return 0; }
  virtual void start_all_reduce(void* buffer, std::size_t count, ScalarType type, ReduceOp op, int /*ready_mark*/) {
    all_reduce(buffer, count, type, op);
  }
  virtual void finish_on(void* /*stream*/) {}
  /// `receive` holds size() * bytes_per_rank bytes, in the order of the ranks.
  virtual void all_gather(const void* send, void* receive, std::size_t bytes_per_rank) = 0;
  virtual void broadcast(void* buffer, std::size_t bytes, int root) = 0;
  virtual void barrier() = 0;

  /// Host memory, zeroed and aligned to 64 bytes, that all_reduce works on best: it stays the communicator's and is
  /// valid until close(). A later call ends what an earlier one gave. Every rank asks for the same. Collective.
  virtual std::byte* allocate(std::size_t bytes);

  /// What stands guard over this rank; none: nobody does.
  [[nodiscard]] virtual Watchdog* watchdog() { return nullptr; }
  /// What this rank does between collectives, for the others to be told where it never comes to one. Not collective.
  void set_activity(std::string_view text);
  /// That it goes on with it, to be said by work of many parts. Takes next to no time. Not collective.
  void note_progress();

  /// Releases what the group holds. Idempotent; nothing may be called after it.
  virtual void close() = 0;
  /// From another thread: whatever is under way here or begins later fails soon, without the other ranks. The default
  /// does nothing, as their watchdog ends what waits for them.
  virtual void give_up() {}
  /// Ends every rank of the group: says `reason` once with this rank and host, and makes `exit_code` this process's
  /// code.
  [[noreturn]] virtual void abort(std::string_view reason, int exit_code) = 0;

 private:
  AlignedMemory own_memory_;
};

/// Strings of any length from every rank, in the order of the ranks. Collective.
std::vector<std::string> all_gather_text(Communicator& communicator, std::string_view text);
/// The root's text on every rank. Collective.
std::string broadcast_text(Communicator& communicator, std::string_view text, int root);

}  // namespace onebatch::comm
