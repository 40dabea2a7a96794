// What the probe learned about every rank's device.
#pragma once

#include "trainer/base/cost_table.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace onebatch {

/// One try of one micro-batch size in the state in which the rank will train.
struct Trial {
  std::int64_t size = 0;
  bool fits = false;
  bool out_of_memory = false;
  std::int64_t peak_bytes = 0;
  double seconds = 0.0;
};

/// What takes a device's memory.
struct MemoryUse {
  std::int64_t parameters_bytes = 0;
  std::int64_t buffers_bytes = 0;
  std::int64_t gradients_bytes = 0;
  std::int64_t optimizer_bytes = 0;
  std::int64_t communication_bytes = 0;      // what else lies there before any sample
  std::int64_t workspace_bytes = 0;          // in a step, whatever its size
  double activation_bytes_per_sample = 0.0;  // in a step, of each sample of a micro-batch
  double kept_bytes_per_sample = 0.0;        // by exact BatchNorm, of each sample of the rank's share, beside that
};

struct RankProfile {
  int rank = 0;
  std::string host;
  std::string device;
  std::int64_t memory_limit_bytes = 0;
  std::int64_t min_micro_batch = 1;
  std::int64_t largest_micro_batch = 0;  // the largest that was seen to fit, before the margin
  std::int64_t max_micro_batch = 0;      // after the margin: what the plan may use
  std::int64_t peak_bytes = 0;           // at largest_micro_batch
  std::int64_t resident_bytes = 0;       // parameters, gradients, optimizer state, before any sample
  MemoryUse memory;
  std::int64_t room_bytes = 0;  // for a step's samples: the limit less what stays, after the margin
  bool kept_in_host = false;    // what exact BatchNorm keeps lies in host memory
  std::vector<TimedSize> step_seconds;
  double times_spread = 0.0;  // of repeated times, as a part of them; above 0.15 something else has used the machine
  double jitter = 0.0;        // a quarter of repeated times is above their median by this part of it or more
  std::vector<Trial> trials;
  bool recomputes = false;         // activations are computed again: nothing fits otherwise, or the step is shorter
  bool from_cache = false;         // an earlier probe's answer, confirmed by one trial
  double optimizer_seconds = 0.0;  // what a rank does of a step beside micro-batches and reduction
  double reduce_seconds = 0.0;     // one reduction of the whole gradient
  double exchange_seconds = 0.0;   // the collectives of all BatchNorms that share statistics over ranks, once each
  bool lock_step = false;          // they share those of one micro-batch of every rank at a time
  bool local_statistics = false;   // BatchNorm takes its statistics from each micro-batch alone
};

struct ClusterProfile {
  std::vector<RankProfile> ranks;
};

}  // namespace onebatch
