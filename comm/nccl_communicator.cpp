// Collectives on GPU memory over NCCL: bootstrapped over the control communicator, on a stream of its own, with
// asynchronous errors and a deadline polled.
#include "comm/error.hpp"
#include "comm/local_communicator.hpp"
#include "comm/stopwatch.hpp"
#include "comm/watchdog.hpp"
#include "comm/world.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <source_location>
#include <thread>
#include <utility>
#include <vector>

namespace onebatch::comm {
namespace {

constexpr auto k_poll = std::chrono::microseconds(50);
constexpr double k_meeting_seconds = 60.0;  // which the first sums may take
constexpr std::size_t k_large_meeting_bytes = std::size_t{32} << 20;
constexpr const char* k_hints =
    "try NCCL_P2P_DISABLE=1, NCCL_SOCKET_IFNAME=INTERFACE of the network between the nodes, a larger /dev/shm (docker "
    "run --shm-size=1g), or comm.backend = \"mpi\"; NCCL_DEBUG=INFO says more";

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
  NcclCommunicator(World& world, const NcclOptions& options)
      : control_(world.control()),
        watchdog_(world.watchdog()),
        rank_(world.rank()),
        size_(world.size()),
        deadline_seconds_(options.timeout_seconds) {
    if (options.deterministic) fix_algorithms();
    check_cuda(cudaSetDevice(options.cuda_device), "cudaSetDevice");
    // Of the highest priority: its kernels are few and others wait for them.
    int lowest = 0;
    int highest = 0;
    check_cuda(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
    check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, highest), "cudaStreamCreateWithPriority");
    check_cuda(cudaEventCreateWithFlags(&caller_reached_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    check_cuda(cudaEventCreateWithFlags(&all_done_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    connect();
    meet_early();
  }

  // Neither throws nor communicates: a communicator that was not closed in order is sick.
  ~NcclCommunicator() override {
    if (communicator_ != nullptr) ncclCommAbort(communicator_);
    for (cudaEvent_t mark : marks_) cudaEventDestroy(mark);
    if (all_done_ != nullptr) cudaEventDestroy(all_done_);
    if (caller_reached_ != nullptr) cudaEventDestroy(caller_reached_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::string_view backend() const override { return "nccl"; }

  void all_reduce(void* buffer, std::size_t count, ScalarType type, ReduceOp op) override {
    run("ncclAllReduce", count * size_of(type),
        [&] { return ncclAllReduce(buffer, buffer, count, nccl_type(type), nccl_op(op), communicator_, stream_); });
  }
  // One event for each buffer under way: a mark must not move before the stream of communication has been told to wait
  // for it.
  int mark_ready(void* stream) override {
    const std::scoped_lock lock(marks_mutex_);
    if (next_mark_ == marks_.size()) {
      marks_.push_back(nullptr);
      check_cuda(cudaEventCreateWithFlags(&marks_.back(), cudaEventDisableTiming), "cudaEventCreateWithFlags");
    }
    check_cuda(cudaEventRecord(marks_[next_mark_], static_cast<cudaStream_t>(stream)), "cudaEventRecord");
    return static_cast<int>(next_mark_++);
  }

  void start_all_reduce(void* buffer, std::size_t count, ScalarType type, ReduceOp op, int ready_mark) override {
    check_goes_on("ncclAllReduce");
    const Watchdog::Guard guard(watchdog_, "ncclAllReduce", count * size_of(type));
    cudaEvent_t ready = nullptr;
    {
      const std::scoped_lock lock(marks_mutex_);
      ready = marks_.at(static_cast<std::size_t>(ready_mark));
    }
    check_cuda(cudaStreamWaitEvent(stream_, ready, 0), "cudaStreamWaitEvent");
    poll("ncclAllReduce", ncclAllReduce(buffer, buffer, count, nccl_type(type), nccl_op(op), communicator_, stream_));
  }

  void finish_on(void* stream) override {
    check_goes_on("ncclAllReduce");
    const Watchdog::Guard guard(watchdog_, "ncclAllReduce", 0);
    check_cuda(cudaEventRecord(all_done_, stream_), "cudaEventRecord");
    check_cuda(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), all_done_, 0), "cudaStreamWaitEvent");
    wait_for_stream("ncclAllReduce");
    const std::scoped_lock lock(marks_mutex_);
    next_mark_ = 0;
  }

  void all_gather(const void* send, void* receive, std::size_t bytes_per_rank) override {
    run("ncclAllGather", bytes_per_rank,
        [&] { return ncclAllGather(send, receive, bytes_per_rank, ncclUint8, communicator_, stream_); });
  }
  void broadcast(void* buffer, std::size_t bytes, int root) override {
    run("ncclBroadcast", bytes,
        [&] { return ncclBroadcast(buffer, buffer, bytes, ncclUint8, root, communicator_, stream_); });
  }
  void barrier() override { control_.barrier(); }

  void close() override {
    if (communicator_ == nullptr) return;
    const Watchdog::Guard guard(watchdog_, "ncclCommFinalize", 0);
    poll("ncclCommFinalize", ncclCommFinalize(communicator_));
    ncclComm_t closing = std::exchange(communicator_, nullptr);
    check_nccl(ncclCommDestroy(closing), "ncclCommDestroy");
  }

  void give_up() override { gives_up_ = true; }

  [[noreturn]] void abort(std::string_view reason, int exit_code) override {
    if (communicator_ != nullptr) ncclCommAbort(std::exchange(communicator_, nullptr));
    control_.abort(reason, exit_code);
    std::terminate();
  }

 private:
  // Else NCCL chooses by size and load, and sums in another order. What the user has set stays.
  static void fix_algorithms() {
    setenv("NCCL_ALGO", "Ring", 0);
    setenv("NCCL_PROTO", "Simple", 0);
    setenv("NCCL_NVLS_ENABLE", "0", 0);
  }

  void connect() {
    const Watchdog::Guard guard(watchdog_, "ncclCommInitRankConfig", 0);
    ncclUniqueId id{};
    if (rank_ == 0) check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
    control_.broadcast(&id, sizeof(id), 0);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;  // a blocking start hangs on a peer that has died
    poll("ncclCommInitRankConfig", ncclCommInitRankConfig(&communicator_, size_, id, rank_, &config));
  }

  // Paths that do not work show in the first collectives, as wrong sums or none at all: here and soon, not in a step. A
  // small sum and one that is cut into pieces take unlike paths.
  void meet_early() {
    const double whole_deadline = std::exchange(deadline_seconds_, std::min(deadline_seconds_, k_meeting_seconds));
    void* memory = nullptr;
    check_cuda(cudaMalloc(&memory, sizeof(float)), "cudaMalloc");
    const float one = 1.0F;
    check_cuda(cudaMemcpy(memory, &one, sizeof(one), cudaMemcpyHostToDevice), "cudaMemcpy");
    meet(memory, 1);
    float sum = 0.0F;
    check_cuda(cudaMemcpy(&sum, memory, sizeof(sum), cudaMemcpyDeviceToHost), "cudaMemcpy");
    check_cuda(cudaFree(memory), "cudaFree");
    if (sum != static_cast<float>(size_))
      throw CommError(rank_, "ncclAllReduce",
                      fmt::format("the GPUs do not reach each other: a sum of ones over {} ranks came out as {:f}; {}",
                                  size_, sum, k_hints));
    check_cuda(cudaMalloc(&memory, k_large_meeting_bytes), "cudaMalloc");
    check_cuda(cudaMemset(memory, 0, k_large_meeting_bytes), "cudaMemset");
    meet(memory, k_large_meeting_bytes / sizeof(float));
    check_cuda(cudaFree(memory), "cudaFree");
    deadline_seconds_ = whole_deadline;
  }

  void meet(void* memory, std::size_t count) {
    try {
      all_reduce(memory, count, ScalarType::float32, ReduceOp::sum);
    } catch (const CommError& error) {
      throw CommError(
          rank_, "ncclAllReduce",
          fmt::format("the GPUs do not reach each other: the first sum of {} bytes did not come about ({}); {}",
                      count * sizeof(float), error.what(), k_hints));
    }
  }

  // Starts an operation after all work that the caller has put on the default stream, and waits for it under the
  // deadline.
  template <typename Start>
  void run(const char* call, std::size_t bytes, const Start& start) {
    check_goes_on(call);
    const Watchdog::Guard guard(watchdog_, call, bytes);
    check_cuda(cudaEventRecord(caller_reached_, cudaStreamLegacy), "cudaEventRecord");
    check_cuda(cudaStreamWaitEvent(stream_, caller_reached_, 0), "cudaStreamWaitEvent");
    poll(call, start());
    wait_for_stream(call);
  }

  // Looks at the stream instead of synchronizing with it: that would hang on a dead peer.
  void wait_for_stream(const char* call) {
    const Stopwatch watch;
    for (cudaError_t state = cudaStreamQuery(stream_); state != cudaSuccess; state = cudaStreamQuery(stream_)) {
      if (state != cudaErrorNotReady) check_cuda(state, call);
      static_cast<void>(cudaGetLastError());  // else the next kernel's launch takes it for its own
      check_asynchronous(call);
      check_deadline(watch, call);
      std::this_thread::sleep_for(k_poll);
    }
    check_asynchronous(call);
  }

  // A non-blocking communicator answers ncclInProgress until the call is really under way.
  void poll(const char* call, ncclResult_t result, std::source_location where = std::source_location::current()) {
    const Stopwatch watch;
    while (result == ncclInProgress) {
      check_deadline(watch, call);
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

  void check_goes_on(const char* call) const {
    if (gives_up_) throw CommError(rank_, call, "the run has failed elsewhere");
  }

  // Where the watchdog's deadline is the shorter one it is the one that counts: it knows of ranks that are at work, and
  // of time in which this process was stopped.
  void check_deadline(const Stopwatch& watch, const char* call) const {
    check_goes_on(call);
    if (watchdog_.timeout_seconds() < deadline_seconds_) return;
    if (watch.seconds() > deadline_seconds_)
      throw CommError(rank_, call, fmt::format("the other ranks did not arrive within {:f} s", deadline_seconds_));
  }

  void check_nccl(ncclResult_t result, const char* call,
                  std::source_location where = std::source_location::current()) const {
    if (result == ncclSuccess || result == ncclInProgress) return;
    throw CommError(rank_, call, std::string(ncclGetErrorString(result)) + " (" + ncclGetLastError(communicator_) + ")",
                    where);
  }

  void check_cuda(cudaError_t result, const char* call,
                  std::source_location where = std::source_location::current()) const {
    if (result != cudaSuccess) throw CommError(rank_, call, cudaGetErrorString(result), where);
  }

  Communicator& control_;
  Watchdog& watchdog_;
  int rank_;
  int size_;
  double deadline_seconds_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t caller_reached_ = nullptr;
  cudaEvent_t all_done_ = nullptr;
  std::atomic<bool> gives_up_ = false;
  std::mutex marks_mutex_;
  std::vector<cudaEvent_t> marks_;
  std::size_t next_mark_ = 0;
  ncclComm_t communicator_ = nullptr;
};

}  // namespace

std::unique_ptr<Communicator> create_nccl_communicator(World& world, const NcclOptions& options) {
  return std::make_unique<NcclCommunicator>(world, options);
}

bool built_with_nccl() {
  return true;
}

std::string nccl_version() {
  int version = 0;
  if (const ncclResult_t result = ncclGetVersion(&version); result != ncclSuccess) return ncclGetErrorString(result);
  const auto text = [](int code) { return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100); };
  if (version / 100 == NCCL_VERSION_CODE / 100) return text(version);
  return fmt::format("{} (built with {})", text(version), text(NCCL_VERSION_CODE));
}

}  // namespace onebatch::comm
