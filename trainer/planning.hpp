// The plans of a run: made on rank 0 from the profile, sent to all, rehearsed once.
#pragma once

#include "trainer/observer.hpp"
#include "trainer/probe/rank_probe.hpp"
#include "trainer/step.hpp"

#include <map>

namespace onebatch {

class RunPlans {
 public:
  RunPlans(const Configuration& configuration, Replica& replica, const Dataset& data, GradientReducer& reducer, comm::Communicator& control,
           Observer& observer);

  /// Measures the cluster unless that was done or given. Collective.
  const ClusterProfile& profile();
  void use_profile(ClusterProfile profile);
  /// The plans of a full and of the last short batch, probing first where needed. Collective.
  const EpochPlan& epoch_plan();
  /// Goes on with a plan that was made before: same ranks, devices and batch.
  void use_plan(EpochPlan plan);
  /// Plans anew where ranks ran out of memory: `failed_sizes` has, for each, the micro-batch that did not fit, or 0. False where the
  /// configuration fixes what would have to change. Collective.
  bool lower_limits(const std::vector<std::int64_t>& failed_sizes);
  /// The plan for a batch of any size, as a resumed epoch may have. Collective.
  const Plan& plan_of(std::int64_t batch_size);

 private:
  EpochPlan make_epoch_plan();
  Plan make_plan(std::int64_t batch_size);
  // Replicas are one model: a plan is made once, and sent as JSON.
  EpochPlan plan_on_rank_0(const std::function<std::string()>& plan) const;
  void lower_limit(std::size_t rank, std::int64_t failed_size, double factor, const std::string& why);
  /// One whole step with real collectives, undone afterwards. Where it does not fit on a rank, that rank's limit is lowered and the plan
  /// made anew.
  void rehearse();
  /// Whether no rank ran out of memory in it. The limits of those that did are lowered to `factor` of what did not fit.
  bool rehearsal_fits(TrainingStep& step, double factor);

  const Configuration& configuration_;
  Replica& replica_;
  const Dataset& data_;
  GradientReducer& reducer_;
  comm::Communicator& control_;
  Observer& observer_;
  std::optional<ClusterProfile> profile_;
  std::optional<EpochPlan> plan_;
  std::map<std::int64_t, Plan> other_plans_;
};

}  // namespace onebatch
