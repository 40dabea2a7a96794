// The plan's steps against single large batches, on the user's own model and data.
#pragma once

#include "trainer/data/sample_order.hpp"
#include "trainer/run/planning.hpp"
#include "trainer/run/session.hpp"

namespace onebatch {

struct VerifyParts {
  const Configuration& configuration;
  Replica& replica;
  const MicroBatchRunner& runner;
  const Dataset& data;
  const Dataset* validation;  // may be none
  const SampleDrawing& drawing;
  GradientReducer& reducer;
  comm::Communicator& control;
  RunPlans& plans;
  StepGraphs* graphs;  // may be none
};

/// Two optimizer steps of the plan and the epoch's short last batch: gradient, loss, weights and buffers after each,
/// then validation and the replicas' digests. The reference is rank 0's: all samples at once on the CPU in fp64 (where
/// host memory is predicted to hold that, else of the largest batch that does, split in the plan's pattern). A gradient
/// passes where its error is at most twice one single large batch's own in the run's precision and on its device, or
/// what so many sums round; where that single batch is itself far off, nothing can be judged, and the same
/// micro-batches in float64 say what splitting does. The replica has taken these steps afterwards. Collective; the
/// report is rank 0's, its verdict everyone's.
VerifyReport verify_gradient(const VerifyParts& parts, const VerifyOptions& options);

/// Where rank 0's host, with so many bytes free, cannot hold what verify holds of the model: what to say, since it
/// would be ended by a signal, without a word. Empty: it may fit.
std::string why_host_is_too_small(const Model& model, std::int64_t available_bytes);

}  // namespace onebatch
