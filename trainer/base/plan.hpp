// A plan: who computes which micro-batches of one global batch, and what that is predicted to take.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace onebatch {

/// `count` micro-batches of `size` samples, one after the other.
struct MicroBatchRun {
  std::int64_t size = 0;
  std::int64_t count = 0;
  friend bool operator==(const MicroBatchRun&, const MicroBatchRun&) = default;
};

struct RankPlan {
  int rank = 0;
  std::string device;
  std::int64_t samples = 0;                  // this rank's share of the global batch; may be 0
  std::vector<MicroBatchRun> micro_batches;  // in the order of execution, the largest last
  std::vector<double> micro_batch_seconds;   // predicted, of one of each run; empty where the plan was written without
  double predicted_seconds = 0.0;            // compute and the rank's constant
  double idle_fraction = 0.0;                // 1 - predicted_seconds / slowest rank's
  bool kept_in_host = false;                 // what exact BatchNorm keeps of the share lies in host memory
  bool recomputes = false;                   // activations are computed again, as memory.recompute = "auto" may choose
};

struct Plan {
  std::int64_t global_batch_size = 0;
  double predicted_step_seconds = 0.0;        // slowest rank with its jitter, reduction that is not hidden, optimizer
  std::optional<double> equal_split_seconds;  // none where that split does not fit
  std::optional<double> memory_split_seconds;
  std::vector<RankPlan> ranks;
  std::vector<std::string> notes;  // what a user must know: a rank without work, a micro-batch below the least size
};

/// The plan of every full global batch and, where the data set leaves one, of the last short batch.
struct EpochPlan {
  Plan full;
  std::optional<Plan> last;
};

}  // namespace onebatch
