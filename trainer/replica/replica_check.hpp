// Whether all ranks still have the same parameters. See Note [Replicas are one model].
#pragma once

#include "comm/communicator.hpp"
#include "trainer/replica/replica.hpp"

#include <functional>
#include <optional>

namespace onebatch {

/// What was found to differ from rank 0's.
struct ReplicaDifference {
  bool operator==(const ReplicaDifference&) const = default;

  std::vector<int> ranks;
  std::string parameter;  // the first that differs on the first of them
};

/// Compares digests of the parameters. Where a rank's differs it gets rank 0's parameters and optimizer state, and so
/// does every other. None where all are the same. `before_mending` is told before anything changes. Collective.
std::optional<ReplicaDifference> mend_replicas(Replica& replica, comm::Communicator& control,
                                               const std::function<void()>& before_mending = {});

/// Throws AgreedError that names a buffer that is no statistic and not the same on every rank: the model keeps
/// something of its samples in it, which no checkpoint and no validation could be true to. Collective.
void check_other_buffers(const Replica& replica, comm::Communicator& control);

}  // namespace onebatch
