// Validation: loss, accuracy and metrics over a whole data set, averaged exactly over ranks.
#pragma once

#include "comm/communicator.hpp"
#include "trainer/base/results.hpp"
#include "trainer/replica/replica.hpp"
#include "trainer/step/chosen_metrics.hpp"

#include <string>

namespace onebatch {

struct EvaluationRequest {
  std::int64_t micro_batch_size = 256;  // at most; halved on this rank where it does not fit, which changes no result
  double share = 1.0;                   // this rank's part of the work, relative to the others'
  std::string what = "validation";      // said with how much of it is done
  ChosenMetrics metrics = {};           // beside loss and accuracy
};

/// In eval mode and without gradients; sums in fp64 over ranks, divided once. Throws AgreedError where a metric that
/// was asked for cannot be had of the model's outputs. Collective.
EvaluationResult evaluate(const EvaluationRequest& request, Replica& replica, const Dataset& data,
                          comm::Communicator& control);

/// How many of `total` each rank gets in proportion to `shares` (by rounding the running sum); equal parts where all
/// are zero.
std::vector<std::int64_t> split_by_shares(std::int64_t total, const std::vector<double>& shares);

}  // namespace onebatch
