// The plans of a run: made on rank 0 from the tables, sent to all, rehearsed once.
#pragma once

#include "trainer/run/memory_policy.hpp"

#include <map>

namespace onebatch {

/// All is collective, and the same on every rank.
class PlanBook {
 public:
  PlanBook(const PlanningParts& parts, ClusterTables& tables, MemoryPolicy& memory)
      : parts_(parts), tables_(tables), memory_(memory) {}

  /// What the ranks' devices are: measures them unless that was done or given.
  const ClusterProfile& profile();
  /// The plans of a full and of the last short batch, probing first where needed.
  const EpochPlan& epoch_plan();
  /// The plan for a batch of any size, as a resumed epoch may have.
  const Plan& plan_of(std::int64_t batch_size);
  /// For a smaller batch than the run's, whatever would be quicker: the run's plan, in as many micro-batches. plan_of()
  /// has it from then on.
  const Plan& plan_in_pattern(std::int64_t batch_size);
  /// Made already: plan_of() measures nothing.
  [[nodiscard]] bool has_plan_of(std::int64_t batch_size) const;

  /// Why this run cannot follow a plan that was made before; empty: it can.
  [[nodiscard]] std::string why_not(const EpochPlan& plan) const;
  /// The next plan that is needed is this one, if none was made or given yet.
  void use_plan(EpochPlan plan);
  /// The same for the user's own: it is rehearsed, and what it was made for is compared. Throws AgreedError.
  void repeat_plan(EpochPlan plan, const std::string& origin);

  /// Plans anew where ranks ran out of memory: `failed_sizes` has, for each, the micro-batch that did not fit, or 0.
  /// False where the configuration fixes what would have to change.
  bool lower_limits(const std::vector<std::int64_t>& failed_sizes);
  /// Whatever it wins: what the plan was made for is not there any more.
  void plan_anew();
  /// The plan that the tables as they are now ask for. It is not followed.
  EpochPlan make_epoch_plan();
  /// Follows this plan from here on.
  void replace(EpochPlan plan);

  /// Null where none was made or given yet.
  [[nodiscard]] const EpochPlan* current() const { return plan_ ? &*plan_ : nullptr; }
  /// How often a plan was thrown away.
  [[nodiscard]] std::int64_t edition() const { return edition_; }

 private:
  Plan make_plan(std::int64_t batch_size);
  // Replicas are one model: a plan is made once, and sent as JSON.
  EpochPlan plan_on_rank_0(const std::function<std::string()>& plan) const;
  void adopt();
  void say_statistics() const;
  void forget_plans();

  PlanningParts parts_;
  ClusterTables& tables_;
  MemoryPolicy& memory_;
  std::optional<EpochPlan> plan_;
  std::map<std::int64_t, Plan> other_plans_;
  std::int64_t edition_ = 0;
  struct Given {
    EpochPlan plan;
    std::string origin;  // of the user's own; empty: this run's
  };
  std::optional<Given> given_;
};

}  // namespace onebatch
