// The trial that the search steers: one rank measures its own device in the state in which it will train.
#pragma once

#include "comm/communicator.hpp"
#include "trainer/gradients/reducer.hpp"
#include "trainer/probe/probe_cache.hpp"
#include "trainer/probe/search.hpp"
#include "trainer/replica/replica.hpp"
#include "trainer/step/step_runner.hpp"

#include <filesystem>

namespace onebatch {

struct ProbeRequest {
  ProbeConfiguration probe;
  std::optional<std::int64_t> fixed_micro_batch;  // the user's: tried, not searched
  std::int64_t max_size = 0;                      // the global batch or the data set, whichever is less
  bool local_statistics = false;                  // BatchNorm takes its statistics from each micro-batch alone
  Recompute recompute = Recompute::off;           // automatic: where not even the least micro-batch fits without
  std::string identity;                           // what of the configuration the answer depends on
  std::filesystem::path cache_folder;
};

struct ProbeAnswer {
  ClusterProfile profile;
  ProbeCache cache;                                      // where this rank's part is kept
  std::string not_kept;                                  // why it is not
  std::optional<ProbeCache> other_cache = std::nullopt;  // where is kept what was measured too, and is not followed
};

/// Measures this rank while all others measure theirs, and gathers what all found. Nothing is left behind: the
/// replica's digest is compared. With probe.cache an earlier answer to the same question is confirmed by one trial
/// instead. Throws DoesNotFitError where not even the least micro-batch fits. Collective.
ProbeAnswer probe_cluster(const ProbeRequest& request, MicroBatchRunner& runner, const Dataset& data,
                          GradientReducer& reducer, comm::Communicator& control);

/// The same profile with every rank's times measured anew, as they are now. Where a micro-batch does not fit any more,
/// that rank's limit is lower in it. Throws AgreedError where not even the least fits. Collective.
ClusterProfile time_cluster(const ClusterProfile& known, const ProbeRequest& request, MicroBatchRunner& runner,
                            const Dataset& data, GradientReducer& reducer, comm::Communicator& control);

}  // namespace onebatch
