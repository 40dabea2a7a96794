// Plans over several global batches and clusters, side by side.
#pragma once

#include "trainer/plan/elsewhere/device_list.hpp"
#include "trainer/plan/planner.hpp"

namespace onebatch {

struct SweepPoint {
  std::string devices;
  std::int64_t num_ranks = 0;
  std::int64_t global_batch_size = 0;
  std::optional<double> step_seconds;  // none where no plan exists
  double samples_per_second = 0.0;
  double efficiency = 0.0;  // of what all devices could do, each at its best rate and without waiting or reducing
  double epoch_seconds = 0.0;
  std::optional<double> cost_per_epoch;  // where all prices are given
  std::string note;                      // why there is no plan
};

struct SweepRequest {
  std::string devices;  // as the user wrote them
  std::vector<RankCost> ranks;
  PlannerOptions options;
  std::int64_t dataset_size = 0;  // 0 = unknown: no epoch
  LastBatch last_batch = LastBatch::exact;
  Prices prices;
};

SweepPoint sweep_point(const SweepRequest& request, std::int64_t global_batch_size);

/// A line per point. Ends with a newline.
std::string sweep_table(const std::vector<SweepPoint>& points);
/// {"sweep": [{"devices", "ranks", "global_batch_size", "predicted_step_seconds", …}]}.
std::string to_json(const std::vector<SweepPoint>& points);

}  // namespace onebatch
