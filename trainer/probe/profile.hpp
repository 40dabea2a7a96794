// What the probe learned about every rank's device.
#pragma once

#include "trainer/plan/cost_table.hpp"

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
  std::vector<TimedSize> step_seconds;
  double times_spread = 0.0;  // of repeated times, as a part of them; above 0.15 something else has used the machine
  std::vector<Trial> trials;
  double optimizer_seconds = 0.0;  // one optimizer call
  double reduce_seconds = 0.0;     // one reduction of the whole gradient
};

struct ClusterProfile {
  std::vector<RankProfile> ranks;
};

}  // namespace onebatch
