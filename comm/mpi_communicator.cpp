#include "comm/mpi_communicator.hpp"

#include "comm/error.hpp"
#include "comm/half.hpp"
#include "comm/local_communicator.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

namespace onebatch::comm {
namespace {

// Counts are int in MPI 3: longer buffers go in pieces.
constexpr std::size_t k_most_elements = std::size_t{1} << 28;

MPI_Datatype mpi_type(ScalarType type) {
  switch (type) {
    case ScalarType::uint8: return MPI_UINT8_T;
    case ScalarType::int32: return MPI_INT32_T;
    case ScalarType::int64: return MPI_INT64_T;
    case ScalarType::float32: return MPI_FLOAT;
    case ScalarType::float64: return MPI_DOUBLE;
    case ScalarType::float16:
    case ScalarType::bfloat16: break;  // MPI has no such type: reduced as float32
  }
  return MPI_DATATYPE_NULL;
}

MPI_Op mpi_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return MPI_SUM;
    case ReduceOp::min: return MPI_MIN;
    case ReduceOp::max: return MPI_MAX;
  }
  return MPI_OP_NULL;
}

// Calls `piece(offset, count)` over `total` in pieces that MPI can count.
template <typename Piece>
void for_each_piece(std::size_t total, const Piece& piece) {
  for (std::size_t begin = 0; begin < total; begin += k_most_elements) {
    piece(begin, static_cast<int>(std::min(k_most_elements, total - begin)));
  }
}

}  // namespace

void check_mpi(int code, int rank, const char* call, std::source_location where) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw CommError(rank, call, std::string_view(text.data(), static_cast<std::size_t>(length)), where);
}

std::unique_ptr<MpiCommunicator> MpiCommunicator::create(MPI_Comm parent, Watchdog& watchdog) {
  const Watchdog::Guard guard(watchdog, "MPI_Comm_dup", 0);
  MPI_Comm duplicate = MPI_COMM_NULL;
  int rank = 0;
  int size = 0;
  check_mpi(MPI_Comm_rank(parent, &rank), 0, "MPI_Comm_rank");
  check_mpi(MPI_Comm_dup(parent, &duplicate), rank, "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(duplicate, MPI_ERRORS_RETURN), rank, "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_size(duplicate, &size), rank, "MPI_Comm_size");
  return std::unique_ptr<MpiCommunicator>(new MpiCommunicator(duplicate, rank, size, watchdog));
}

MpiCommunicator::MpiCommunicator(MPI_Comm communicator, int rank, int size, Watchdog& watchdog)
    : communicator_(communicator), rank_(rank), size_(size), watchdog_(watchdog) {}

void MpiCommunicator::all_reduce(void* buffer, std::size_t count, ScalarType type, ReduceOp op) {
  if (type == ScalarType::float16 || type == ScalarType::bfloat16)
    return all_reduce_half(static_cast<std::uint16_t*>(buffer), count, type, op);
  const Watchdog::Guard guard(watchdog_, "all_reduce", count * size_of(type));
  auto* bytes = static_cast<std::byte*>(buffer);
  for_each_piece(count, [&](std::size_t begin, int piece) {
    check_mpi(
        MPI_Allreduce(MPI_IN_PLACE, bytes + begin * size_of(type), piece, mpi_type(type), mpi_op(op), communicator_),
        rank_, "MPI_Allreduce");
  });
}

void MpiCommunicator::all_reduce_half(std::uint16_t* values, std::size_t count, ScalarType type, ReduceOp op) {
  std::vector<float> wide(count);
  for (std::size_t i = 0; i < count; ++i)
    wide[i] = type == ScalarType::float16 ? half_to_float(values[i]) : bfloat16_to_float(values[i]);
  all_reduce(wide.data(), count, ScalarType::float32, op);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = type == ScalarType::float16 ? float_to_half(wide[i]) : float_to_bfloat16(wide[i]);
}

void MpiCommunicator::all_gather(const void* send, void* receive, std::size_t bytes_per_rank) {
  const Watchdog::Guard guard(watchdog_, "all_gather", bytes_per_rank);
  if (bytes_per_rank <= k_most_elements) {
    const int bytes = static_cast<int>(bytes_per_rank);
    check_mpi(MPI_Allgather(send, bytes, MPI_BYTE, receive, bytes, MPI_BYTE, communicator_), rank_, "MPI_Allgather");
    return;
  }
  auto* received = static_cast<std::byte*>(receive);
  const auto* own = static_cast<const std::byte*>(send);
  std::copy(own, own + bytes_per_rank, received + static_cast<std::size_t>(rank_) * bytes_per_rank);
  for (int root = 0; root < size_; ++root)
    broadcast(received + static_cast<std::size_t>(root) * bytes_per_rank, bytes_per_rank, root);
}

void MpiCommunicator::broadcast(void* buffer, std::size_t bytes, int root) {
  const Watchdog::Guard guard(watchdog_, "broadcast", bytes);
  auto* data = static_cast<std::byte*>(buffer);
  for_each_piece(bytes, [&](std::size_t begin, int piece) {
    check_mpi(MPI_Bcast(data + begin, piece, MPI_BYTE, root, communicator_), rank_, "MPI_Bcast");
  });
}

void MpiCommunicator::barrier() {
  const Watchdog::Guard guard(watchdog_, "barrier", 0);
  check_mpi(MPI_Barrier(communicator_), rank_, "MPI_Barrier");
}

void MpiCommunicator::close() {
  if (communicator_ == MPI_COMM_NULL) return;
  const Watchdog::Guard guard(watchdog_, "close", 0);
  check_mpi(MPI_Comm_free(&communicator_), rank_, "MPI_Comm_free");
  communicator_ = MPI_COMM_NULL;
}

void MpiCommunicator::abort(std::string_view reason, int exit_code) {
  say_failure(rank_, reason);
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

}  // namespace onebatch::comm
