// NCCL whose ranks really meet: a collective ends once every rank's stream has come to it. Sums are made of what small
// blocks remember.
#include "counts.hpp"
#include "device.hpp"
#include "memory.hpp"
#include "session.hpp"
#include "settings.hpp"
#include "streams.hpp"

#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <random>

using namespace null_gpu;

namespace {

struct Communicator {
  Board* board = nullptr;
  int rank = 0;
  int size = 0;
  int device = 0;
  bool blocking = true;
  std::atomic<bool> aborted{false};
  std::uint64_t sequence = 0;
  int still_in_progress = 0;  // answers that are left
  std::int64_t taken = 0;     // bytes of the device
};

using Shared = std::shared_ptr<Communicator>;

Shared& of(ncclComm_t handle) {
  return *reinterpret_cast<Shared*>(handle);
}

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64: return 8;
    default: return 4;
  }
}

double read(const char* bytes, ncclDataType_t type) {
  const auto as = [&](auto value) {
    std::memcpy(&value, bytes, sizeof(value));
    return static_cast<double>(value);
  };
  if (type == ncclFloat32) return as(float());
  if (type == ncclFloat64) return as(double());
  if (type == ncclInt64) return as(std::int64_t());
  return as(std::int32_t());
}

void write(char* bytes, ncclDataType_t type, double number) {
  const auto as = [&](auto value) {
    value = static_cast<decltype(value)>(number);
    std::memcpy(bytes, &value, sizeof(value));
  };
  if (type == ncclFloat32) return as(float());
  if (type == ncclFloat64) return as(double());
  if (type == ncclInt64) return as(std::int64_t());
  as(std::int32_t());
}

double combine(double one, double other, ncclRedOp_t op) {
  return op == ncclMin ? std::min(one, other) : (op == ncclMax ? std::max(one, other) : one + other);
}

bool all_arrived(const Communicator& communicator, std::uint64_t number) {
  for (int rank = 0; rank < communicator.size; ++rank) {
    if (communicator.board->arrived[rank].load() < number) return false;
  }
  return true;
}

struct Collective {
  const void* send;
  void* receive;
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  bool reduces;
};

// What this rank brings, for others to see.
void bring(const Communicator& communicator, const Collective& collective, std::uint64_t number) {
  const char* mine = remembered(collective.send, collective.count * size_of(collective.type));
  if (!collective.reduces || mine == nullptr || collective.count > k_most_values || size_of(collective.type) < 4)
    return;
  for (std::size_t i = 0; i < collective.count; ++i)
    communicator.board->values[number % 2][communicator.rank][i] =
        read(mine + i * size_of(collective.type), collective.type);
}

void take_result(const Communicator& communicator, const Collective& collective, std::uint64_t number) {
  char* result = remembered(collective.receive, collective.count * size_of(collective.type));
  if (!collective.reduces || result == nullptr || collective.count > k_most_values || size_of(collective.type) < 4)
    return;
  const auto& values = communicator.board->values[number % 2];
  for (std::size_t i = 0; i < collective.count; ++i) {
    double total = values[0][i];
    for (int rank = 1; rank < communicator.size; ++rank) total = combine(total, values[rank][i], collective.op);
    write(result + i * size_of(collective.type), collective.type, total);
  }
}

// A rank brings its values to the next but one collective only when all have taken those of this: they have arrived at
// the one between.
bool meet(Communicator& communicator, const Collective& collective, std::uint64_t number) {
  if (communicator.aborted) return true;
  std::atomic<std::uint64_t>& arrived = communicator.board->arrived[communicator.rank];
  if (arrived.load() < number) {
    bring(communicator, collective, number);
    arrived.store(number);
  }
  if (!all_arrived(communicator, number)) return false;
  take_result(communicator, collective, number);
  return true;
}

// NCCL connects at the first collective, and that takes memory.
bool connect(Communicator& communicator, std::int64_t bytes) {
  const NcclSettings& nccl = settings().nccl;
  if (communicator.taken > 0 || nccl.memory == 0 || bytes < nccl.from_bytes) return true;
  if (!take(communicator.device, nccl.memory)) return false;
  communicator.taken = nccl.memory;
  return true;
}

ncclResult_t answer(Communicator& communicator) {
  if (communicator.blocking) return ncclSuccess;
  communicator.still_in_progress = settings().nccl.in_progress;
  return communicator.still_in_progress > 0 ? ncclInProgress : ncclSuccess;
}

ncclResult_t collect(const Collective& collective, ncclComm_t handle, cudaStream_t stream) {
  static std::atomic<int> calls{0};
  const Shared communicator = of(handle);
  const int call = ++calls;
  ++counts().nccl;
  if (call == settings().nccl.fail_at) return ncclRemoteError;
  if (!connect(*communicator, static_cast<std::int64_t>(collective.count * size_of(collective.type))))
    return ncclUnhandledCudaError;
  const std::uint64_t number = ++communicator->sequence;
  const std::size_t bytes = collective.count * size_of(collective.type);
  touch(stream_of(stream), {static_cast<const char*>(collective.send), bytes, false, "NCCL"});
  touch(stream_of(stream), {static_cast<const char*>(collective.receive), bytes, true, "NCCL"});
  const bool hangs = call == settings().nccl.hang_at;
  enqueue(stream_of(stream), WorkKind::kernel,
          [=] { return hangs ? communicator->aborted.load() : meet(*communicator, collective, number); });
  return answer(*communicator);
}

std::uint64_t number_of(const ncclUniqueId& id) {
  std::uint64_t number = 0;
  std::memcpy(&number, id.internal, sizeof(number));
  return number;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 0, sizeof(*id));
  std::random_device random;
  for (std::size_t i = 0; i < sizeof(std::uint64_t); ++i) id->internal[i] = static_cast<char>(random() % 255 + 1);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* handle, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* configuration) {
  auto communicator = std::make_shared<Communicator>();
  communicator->board = board(number_of(id));
  if (communicator->board == nullptr || size > k_most_ranks) return ncclInternalError;
  communicator->rank = rank;
  communicator->size = size;
  communicator->device = current_device();
  communicator->blocking = configuration == nullptr || configuration->blocking != 0;
  ++communicator->board->joined;
  *handle = reinterpret_cast<ncclComm_t>(new Shared(communicator));
  return answer(*communicator);
}

ncclResult_t ncclCommInitRank(ncclComm_t* handle, int size, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(handle, size, id, rank, nullptr);
}

// A communicator is there when all of its ranks have come.
ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* state) {
  Communicator& communicator = *of(handle);
  const bool all_joined = communicator.board->joined.load() >= communicator.size;
  if (communicator.still_in_progress > 0) --communicator.still_in_progress;
  *state = all_joined && communicator.still_in_progress == 0 ? ncclSuccess : ncclInProgress;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t communicator, cudaStream_t stream) {
  return collect({send, receive, count, type, op, true}, communicator, stream);
}

ncclResult_t ncclAllGather(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t stream) {
  return collect({send, receive, count, type, ncclSum, false}, communicator, stream);
}

ncclResult_t ncclBroadcast(const void* send, void* receive, std::size_t count, ncclDataType_t type, int,
                           ncclComm_t communicator, cudaStream_t stream) {
  return collect({send, receive, count, type, ncclSum, false}, communicator, stream);
}

ncclResult_t ncclCommFinalize(ncclComm_t communicator) {
  return answer(*of(communicator));
}

// What waits in it ends at once; the handle is left to what still has it.
ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  of(communicator)->aborted = true;
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  of(communicator)->aborted = true;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclUnhandledCudaError: return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    default: return "null GPU error";
  }
}

const char* ncclGetLastError(ncclComm_t) {
  return "null GPU";
}

}  // extern "C"
