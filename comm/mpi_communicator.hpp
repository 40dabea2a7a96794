// Collectives on host memory over MPI, on a communicator of our own.
#pragma once

#include "comm/communicator.hpp"
#include "comm/watchdog.hpp"

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <source_location>

namespace onebatch::comm {

/// Owns a duplicate of a communicator whose errors are returned. The watchdog stands over everything that blocks in it.
class MpiCommunicator final : public Communicator {
 public:
  /// Collective over `parent`.
  static std::unique_ptr<MpiCommunicator> create(MPI_Comm parent, Watchdog& watchdog);
  ~MpiCommunicator() override = default;  // does not communicate: close() frees

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::string_view backend() const override { return "mpi"; }
  void all_reduce(void* buffer, std::size_t count, ScalarType type, ReduceOp op) override;
  void all_gather(const void* send, void* receive, std::size_t bytes_per_rank) override;
  void broadcast(void* buffer, std::size_t bytes, int root) override;
  void barrier() override;
  [[nodiscard]] Watchdog* watchdog() override { return &watchdog_; }
  void close() override;
  [[noreturn]] void abort(std::string_view reason, int exit_code) override;

  [[nodiscard]] MPI_Comm handle() const { return communicator_; }

 private:
  MpiCommunicator(MPI_Comm communicator, int rank, int size, Watchdog& watchdog);
  void all_reduce_half(std::uint16_t* values, std::size_t count, ScalarType type, ReduceOp op);

  MPI_Comm communicator_;
  int rank_;
  int size_;
  Watchdog& watchdog_;
};

/// Throws CommError with MPI's own text unless `code` is MPI_SUCCESS.
void check_mpi(int code, int rank, const char* call, std::source_location where = std::source_location::current());

}  // namespace onebatch::comm
