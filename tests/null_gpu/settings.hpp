// What the stand-in plays, from the environment variable NULL_GPU: a JSON object. Unknown keys end the process with a
// message.
//
//   {"devices": [{"memory": 8589934592, "compute_capability": "9.0", "name": "null GPU", "reserved": 419430400}],
//    "driver": 13000, "peer_access": false,
//    "lag_milliseconds": 2,          work on a stream begins that much later, unless somebody waits for it
//    "fail_allocation": 0,           the n-th cudaMalloc of the process is out of memory
//    "drop_waits": false,            streams do not wait for events, as in a program that has forgotten to say so
//    "own_kernels": "right",         the program's own are as it wrote them; "wrong": they compute something else;
//                                    "refused": the driver does not take them
//    "host_memory": 0,               most bytes of pinned host memory; 0: any
//    "session": "/dev/shm/x",        a file by which processes share devices' memory and meet in collectives
//    "nccl": {"memory": 0, "from_bytes": 0, "in_progress": 3, "hang_at": 0, "fail_at": 0},
//    "counts": "/tmp/counts",        a line of JSON at the end of each process
//    "stops": "/tmp/stops",          where the host has waited at the end of each process, the most frequent first
//    "ranks": {"1": {...}}}          what differs for a rank of Open MPI
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace null_gpu {

struct Device {
  std::string name = "null GPU";
  std::int64_t memory = std::int64_t{8} << 30;      // bytes
  std::int64_t reserved = std::int64_t{400} << 20;  // bytes that the context takes
  int slot = -1;  // in the node: one that other processes number otherwise is the same device; -1: its number here
  int bus = -1;   // its place there, which parts of one GPU (MIG) have in common; -1: its slot
  int major = 9;
  int minor = 0;
};

struct NcclSettings {
  std::int64_t memory = 0;      // bytes that the first collective of at least `from_bytes` takes on the device
  std::int64_t from_bytes = 0;  // 0: the first of any size
  int in_progress = 3;          // answers of ncclInProgress before a call of a non-blocking communicator is under way
  int hang_at = 0;              // the n-th collective of this process never ends; 0: none
  int fail_at = 0;              // the n-th collective of this process is refused; 0: none
};

struct Settings {
  std::vector<Device> devices = {Device{}};
  int driver = 13000;
  bool peer_access = false;
  double lag_seconds = 0.002;
  std::int64_t fail_allocation = 0;
  std::int64_t host_memory = 0;
  bool drop_waits = false;
  std::string own_kernels = "right";
  std::string session;
  std::string counts;
  std::string stops;
  NcclSettings nccl;
};

/// Read once, at the first call.
const Settings& settings();

}  // namespace null_gpu
