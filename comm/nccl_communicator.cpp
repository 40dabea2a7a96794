// Collectives on GPU memory over NCCL: bootstrapped over the control communicator, on a stream of its own, with asynchronous errors and a
// deadline polled.
#include "comm/error.hpp"
#include "comm/local_communicator.hpp"
#include "comm/world.hpp"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <chrono>
#include <exception>
#include <source_location>
#include <thread>
#include <utility>

namespace onebatch::comm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto k_poll = std::chrono::microseconds(50);

ncclDataType_t nccl_type(ScalarType type) {
  switch (type) {
    case ScalarType::uint8: return ncclUint8;
    case ScalarType::int32: return ncclInt32;
    case ScalarType::int64: return ncclInt64;
    case ScalarType::float16: return ncclFloat16;
    case ScalarType::bfloat16: return ncclBfloat16;
    case ScalarType::float32: return ncclFloat32;
    case ScalarType::float64: return ncclFloat64;
  }
  return ncclUint8;
}

ncclRedOp_t nccl_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return ncclSum;
    case ReduceOp::min: return ncclMin;
    case ReduceOp::max: return ncclMax;
  }
  return ncclSum;
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(World& world, int cuda_device, double timeout_seconds)
      : control_(world.control()), rank_(world.rank()), size_(world.size()), timeout_seconds_(timeout_seconds) {
    check_cuda(cudaSetDevice(cuda_device), "cudaSetDevice");
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    check_cuda(cudaEventCreateWithFlags(&caller_reached_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    connect();
  }

  // Neither throws nor communicates: a communicator that was not closed in order is sick.
  ~NcclCommunicator() override {
    if (communicator_ != nullptr) ncclCommAbort(communicator_);
    if (caller_reached_ != nullptr) cudaEventDestroy(caller_reached_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::string_view backend() const override { return "nccl"; }

  void all_reduce(void* buffer, std::size_t count, ScalarType type, ReduceOp op) override {
    run("ncclAllReduce", [&] { return ncclAllReduce(buffer, buffer, count, nccl_type(type), nccl_op(op), communicator_, stream_); });
  }
  void all_gather(const void* send, void* receive, std::size_t bytes_per_rank) override {
    run("ncclAllGather", [&] { return ncclAllGather(send, receive, bytes_per_rank, ncclUint8, communicator_, stream_); });
  }
  void broadcast(void* buffer, std::size_t bytes, int root) override {
    run("ncclBroadcast", [&] { return ncclBroadcast(buffer, buffer, bytes, ncclUint8, root, communicator_, stream_); });
  }
  void barrier() override { control_.barrier(); }

  void close() override {
    if (communicator_ == nullptr) return;
    poll("ncclCommFinalize", ncclCommFinalize(communicator_));
    ncclComm_t closing = std::exchange(communicator_, nullptr);
    check_nccl(ncclCommDestroy(closing), "ncclCommDestroy");
  }

  [[noreturn]] void abort(std::string_view reason, int exit_code) override {
    if (communicator_ != nullptr) ncclCommAbort(std::exchange(communicator_, nullptr));
    control_.abort(reason, exit_code);
    std::terminate();
  }

 private:
  void connect() {
    ncclUniqueId id{};
    if (rank_ == 0) check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
    control_.broadcast(&id, sizeof(id), 0);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;  // a blocking start hangs on a peer that has died
    poll("ncclCommInitRankConfig", ncclCommInitRankConfig(&communicator_, size_, id, rank_, &config));
  }

  // Starts an operation after all work that the caller has put on the default stream, and waits for it under the deadline.
  template <typename Start>
  void run(const char* call, const Start& start) {
    check_cuda(cudaEventRecord(caller_reached_, cudaStreamLegacy), "cudaEventRecord");
    check_cuda(cudaStreamWaitEvent(stream_, caller_reached_, 0), "cudaStreamWaitEvent");
    poll(call, start());
    const auto began = Clock::now();
    for (cudaError_t state = cudaStreamQuery(stream_); state != cudaSuccess; state = cudaStreamQuery(stream_)) {
      if (state != cudaErrorNotReady) check_cuda(state, call);
      check_asynchronous(call);
      check_deadline(began, call);
      std::this_thread::sleep_for(k_poll);
    }
    check_asynchronous(call);
  }

  // A non-blocking communicator answers ncclInProgress until the call is really under way.
  void poll(const char* call, ncclResult_t result, std::source_location where = std::source_location::current()) {
    const auto began = Clock::now();
    while (result == ncclInProgress) {
      check_deadline(began, call);
      std::this_thread::sleep_for(k_poll);
      check_nccl(ncclCommGetAsyncError(communicator_, &result), "ncclCommGetAsyncError");
    }
    check_nccl(result, call, where);
  }

  void check_asynchronous(const char* call) {
    ncclResult_t state = ncclSuccess;
    check_nccl(ncclCommGetAsyncError(communicator_, &state), "ncclCommGetAsyncError");
    if (state != ncclInProgress) check_nccl(state, call);
  }

  void check_deadline(Clock::time_point began, const char* call) const {
    const double seconds = std::chrono::duration<double>(Clock::now() - began).count();
    if (seconds > timeout_seconds_) {
      throw CommError(rank_, call, "the other ranks did not arrive within comm.timeout_seconds = " + std::to_string(timeout_seconds_));
    }
  }

  void check_nccl(ncclResult_t result, const char* call, std::source_location where = std::source_location::current()) const {
    if (result == ncclSuccess || result == ncclInProgress) return;
    throw CommError(rank_, call, std::string(ncclGetErrorString(result)) + " (" + ncclGetLastError(communicator_) + ")", where);
  }

  void check_cuda(cudaError_t result, const char* call, std::source_location where = std::source_location::current()) const {
    if (result != cudaSuccess) throw CommError(rank_, call, cudaGetErrorString(result), where);
  }

  Communicator& control_;
  int rank_;
  int size_;
  double timeout_seconds_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t caller_reached_ = nullptr;
  ncclComm_t communicator_ = nullptr;
};

}  // namespace

std::unique_ptr<Communicator> create_nccl_communicator(World& world, int cuda_device, double timeout_seconds) {
  return std::make_unique<NcclCommunicator>(world, cuda_device, timeout_seconds);
}

bool built_with_nccl() {
  return true;
}

std::string nccl_version() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return "unknown";
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." + std::to_string(version % 100);
}

}  // namespace onebatch::comm
