// What LibTorch asked of the device, counted; written as a line of JSON when the process ends.
#pragma once

#include <atomic>
#include <string>

namespace null_gpu {

struct Counts {
  std::atomic<long> kernels{0};
  std::atomic<long> replayed_kernels{0};  // by graphs
  std::atomic<long> graph_launches{0};
  std::atomic<long> captures{0};  // that became a graph
  std::atomic<long> blas{0};
  std::atomic<long> cudnn{0};
  std::atomic<long> nccl{0};
  std::atomic<long> to_host{0};    // copies
  std::atomic<long> to_device{0};  // copies
  std::atomic<long> on_device{0};  // copies
  std::atomic<long> memsets{0};
  std::atomic<long> host_stops{0};    // calls in which the host waits for all that a stream has
  std::atomic<long> waits_behind{0};  // and for something with more behind it on its stream: the device goes on
  std::atomic<long> allocations{0};
  std::atomic<long> first_allocation_of_a_capture{0};  // counted from 1, with those that failed; 0: there was none
  std::atomic<long> frees{0};
  std::atomic<long> pinned_allocations{0};
  std::atomic<long> virtual_pieces{0};  // of memory that is put behind addresses
  std::atomic<long> events{0};
  std::atomic<long> overwritten_sources{
      0};  // pinned memory that changed before its copy to the device had run: a wait is missing
  std::atomic<long> peak_bytes{0};  // of any one device
};

Counts& counts();

/// The host waits for a device here.
void count_host_stop();

/// To standard error, once per word: a defect that the stand-in has seen.
void report(const std::string& defect);

}  // namespace null_gpu
