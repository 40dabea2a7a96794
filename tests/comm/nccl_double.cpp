#include "nccl_double.hpp"

#include "comm/half.hpp"

#include <cuda_runtime_api.h>
#include <mpi.h>
#include <nccl.h>

#include <cstdlib>
#include <cstring>
#include <vector>

struct ncclComm {
  MPI_Comm mpi;
  ncclResult_t asynchronous = ncclSuccess;
};

namespace onebatch::testing {
namespace {

Fault planned = Fault::none;
int until_fault = 0;
int aborted = 0;
int destroyed = 0;
bool stream_hangs = false;
bool wrong_answer = false;

MPI_Datatype mpi_type(ncclDataType_t type) {
  switch (type) {
    case ncclInt32: return MPI_INT32_T;
    case ncclInt64: return MPI_INT64_T;
    case ncclFloat32: return MPI_FLOAT;
    case ncclFloat64: return MPI_DOUBLE;
    default: return MPI_UINT8_T;
  }
}

MPI_Op mpi_op(ncclRedOp_t op) {
  return op == ncclSum ? MPI_SUM : (op == ncclMin ? MPI_MIN : MPI_MAX);
}

// Whether this call goes wrong; hanging shows in the stream, as on a GPU.
bool fault_now(ncclComm_t communicator, ncclResult_t& result) {
  if (planned == Fault::none || --until_fault != 0) return false;
  stream_hangs = planned == Fault::hang;
  if (planned == Fault::disagree) {
    planned = Fault::none;
    wrong_answer = true;
    return false;
  }
  result = planned == Fault::fail ? ncclRemoteError : ncclSuccess;
  communicator->asynchronous = result;
  planned = Fault::none;
  return true;
}

template <typename To, typename From>
ncclResult_t reduce_half(void* buffer, std::size_t count, ncclRedOp_t op, MPI_Comm communicator, To to_float,
                         From from_float) {
  auto* bits = static_cast<std::uint16_t*>(buffer);
  std::vector<float> wide(count);
  for (std::size_t i = 0; i < count; ++i) wide[i] = to_float(bits[i]);
  MPI_Allreduce(MPI_IN_PLACE, wide.data(), static_cast<int>(count), MPI_FLOAT, mpi_op(op), communicator);
  for (std::size_t i = 0; i < count; ++i) bits[i] = from_float(wide[i]);
  return ncclSuccess;
}

}  // namespace

void plan_fault(Fault fault, int nth) {
  planned = fault;
  until_fault = nth;
  stream_hangs = false;
}
int aborted_communicators() {
  return aborted;
}
int destroyed_communicators() {
  return destroyed;
}

}  // namespace onebatch::testing

using namespace onebatch::testing;

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 7, sizeof(*id));
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int, ncclUniqueId, int, ncclConfig_t*) {
  int started = 0;
  MPI_Initialized(&started);
  if (!started) MPI_Init(nullptr, nullptr);
  *communicator = new ncclComm{MPI_COMM_NULL};
  MPI_Comm_dup(MPI_COMM_WORLD, &(*communicator)->mpi);
  (*communicator)->asynchronous = ncclSuccess;
  return ncclInProgress;  // as a non-blocking start answers; the state is asked for then
}
ncclResult_t ncclAllReduce(const void*, void* receive, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t communicator, cudaStream_t) {
  ncclResult_t result = ncclSuccess;
  if (fault_now(communicator, result)) return result;
  using namespace onebatch::comm;
  if (type == ncclFloat16) return reduce_half(receive, count, op, communicator->mpi, half_to_float, float_to_half);
  if (type == ncclBfloat16)
    return reduce_half(receive, count, op, communicator->mpi, bfloat16_to_float, float_to_bfloat16);
  MPI_Allreduce(MPI_IN_PLACE, receive, static_cast<int>(count), mpi_type(type), mpi_op(op), communicator->mpi);
  if (wrong_answer) std::memset(receive, 0, 4);  // the first element, whatever its type
  wrong_answer = false;
  return ncclSuccess;
}
ncclResult_t ncclAllGather(const void* send, void* receive, std::size_t count, ncclDataType_t, ncclComm_t communicator,
                           cudaStream_t) {
  const int bytes = static_cast<int>(count);
  MPI_Allgather(send, bytes, MPI_BYTE, receive, bytes, MPI_BYTE, communicator->mpi);
  return ncclSuccess;
}
ncclResult_t ncclBroadcast(const void*, void* receive, std::size_t count, ncclDataType_t, int root,
                           ncclComm_t communicator, cudaStream_t) {
  MPI_Bcast(receive, static_cast<int>(count), MPI_BYTE, root, communicator->mpi);
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* result) {
  *result = communicator->asynchronous;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t) {
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  ++destroyed;
  MPI_Comm_free(&communicator->mpi);
  delete communicator;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  ++aborted;
  delete communicator;  // without MPI_Comm_free: aborting is not collective
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited or there was a network error" : "no error";
}
const char* ncclGetLastError(ncclComm_t) {
  return "the double was told to";
}
ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return ncclSuccess;
}

cudaError_t cudaSetDevice(int) {
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = reinterpret_cast<cudaStream_t>(1);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  *lowest = 0;
  *highest = -5;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  *memory = std::malloc(bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemset(void* memory, int value, std::size_t bytes) {
  std::memset(memory, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(1);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t) {
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t) {
  return stream_hangs ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t) {
  return "a CUDA error";
}

}  // extern "C"
