// A short form of verify before the first step of a run.
#pragma once

#include "comm/communicator.hpp"
#include "trainer/events/event_stream.hpp"
#include "trainer/verify/separation.hpp"

namespace onebatch {

struct AtStartParts {
  ReferenceParts reference;
  comm::Communicator& control;
  EventStream& events;
  const EpochPlan& plan;
};

/// A few of `batch`'s samples at once against the same in parts, on rank 0's host, from the weights that the run has
/// now and in a few seconds at most; where it would take longer, that is said and nothing is done. Throws AgreedError
/// with the user's exit code where the two gradients differ; noise, and a plan that parts nothing, are said instead.
/// The replica is as it was, by digest. Collective.
void check_at_start(const AtStartParts& parts, const std::vector<std::int64_t>& batch, std::int64_t step);

}  // namespace onebatch
