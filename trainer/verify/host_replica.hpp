// The plan's micro-batches on the host in float64: the trainer's own path of accumulation, where no precision of the
// run hides what splitting does.
#pragma once

#include "trainer/verify/reference.hpp"

namespace onebatch {

class HostReplica {
 public:
  /// A replica of the run's, in its mode.
  HostReplica(const ReferenceParts& parts, const Weights& weights);
  ~HostReplica();

  void take_parameters(const Weights& weights);
  /// All ranks' micro-batches of a global batch, one after the other, as one rank would compute them.
  Gradient gradient_of(const std::vector<std::int64_t>& samples, const Plan& plan, std::int64_t step);

 private:
  struct Parts;
  ReferenceParts parts_;
  std::unique_ptr<Parts> own_;
};

}  // namespace onebatch
