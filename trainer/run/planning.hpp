// The plans of a run: made on rank 0 from the profile, sent to all, rehearsed once.
#pragma once

#include "trainer/events/event_stream.hpp"
#include "trainer/plan/drift.hpp"
#include "trainer/probe/rank_probe.hpp"
#include "trainer/step/step.hpp"

#include <map>

namespace onebatch {

class RunPlans {
 public:
  RunPlans(const Configuration& configuration, Replica& replica, const Dataset& data, GradientReducer& reducer, comm::Communicator& control,
           EventStream& events);

  /// Measures the cluster unless that was done or given. Collective.
  const ClusterProfile& profile();
  void use_profile(ClusterProfile profile);
  /// The plans of a full and of the last short batch, probing first where needed. Collective.
  const EpochPlan& epoch_plan();
  /// Why this run cannot follow a plan that was made before; empty: it can.
  [[nodiscard]] std::string why_not(const EpochPlan& plan) const;
  /// The next plan that is needed is this one, if none was made or given yet.
  void use_plan(EpochPlan plan);
  /// The same for the user's own: it is rehearsed, and what it was made for is compared. Throws AgreedError. Collective.
  void repeat_plan(EpochPlan plan, const std::string& origin);
  /// Plans anew where ranks ran out of memory: `failed_sizes` has, for each, the micro-batch that did not fit, or 0. False where the
  /// configuration fixes what would have to change. Collective.
  bool lower_limits(const std::vector<std::int64_t>& failed_sizes);
  /// Compares what the ranks took in a step of the full plan with what it predicted. Where some have lastingly changed and a new plan wins
  /// enough, it is made and said, or only said where it would change the result (batch.replan). True where it was made. Collective.
  bool follow_drift(const StepTotals& totals, std::int64_t step);
  /// The plan for a batch of any size, as a resumed epoch may have. Collective.
  const Plan& plan_of(std::int64_t batch_size);

 private:
  EpochPlan make_epoch_plan();
  Plan make_plan(std::int64_t batch_size);
  // Replicas are one model: a plan is made once, and sent as JSON.
  EpochPlan plan_on_rank_0(const std::function<std::string()>& plan) const;
  struct Gain {
    bool worth = false;
    std::size_t rank = 0;   // that is off most
    double factor = 1.0;    // by
    bool measured = false;  // the tables are of just now
  };
  [[nodiscard]] bool takes_local_statistics() const;
  ProbeRequest probe_request() const;
  void watch();
  // What is seen promises; rank 0 decides.
  Gain gain_of_a_new_plan(const DriftSign& sign);
  bool may_follow_drift(const Gain& gain);
  bool replan_for_drift(const DriftSign& sign, bool measured, std::int64_t step);
  bool plan_for_lower_limits();
  void forget_plans();
  /// Where a rank ran out of memory: what it keeps moves to the host, or else its limit is lowered.
  void make_room(std::size_t rank, std::int64_t failed_size, double factor, const std::string& why);
  void time_what_has_moved();
  /// Measures all times as they are now. True where micro-batches did not fit any more, which is said, and limits are lower.
  bool time_anew();
  [[nodiscard]] bool may_keep_in_host() const;
  void keep_in_host(std::size_t rank, bool in_host);
  /// A plan that was made before: its places hold, and times are measured with them.
  void keep_as_planned();
  void say_kept_in_host(std::size_t rank, const std::string& why);
  /// Where shares are too large for what exact BatchNorm keeps of them on a device, or make micro-batches small: times are measured with it
  /// in host memory, and the quicker plan wins.
  void choose_where_to_keep();
  void lower_limit(std::size_t rank, std::int64_t failed_size, double factor, const std::string& why);
  void say_lowered(std::size_t rank, std::int64_t failed_size, const std::string& why);
  /// Takes the plan that was given.
  void adopt();
  /// Where BatchNorm's statistics are of micro-batches.
  void say_statistics() const;
  /// Where steps lastingly take other times than the cache's tables say, the answer is not kept.
  void correct_cache(const StepTotals& totals, std::int64_t step);
  /// Times that were measured anew replace the cache's.
  void renew_cache();
  bool answer_drift(const StepTotals& totals, std::int64_t step);
  /// A rehearsal of the user's own plan changes nothing of it. Throws AgreedError where it does not fit.
  void rehearse_given();
  /// Per rank the largest micro-batch of a rehearsal that ran out of memory, or 0.
  std::vector<std::int64_t> failed_in_rehearsal(TrainingStep& step);
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
  EventStream& events_;
  std::optional<ClusterProfile> profile_;
  std::optional<EpochPlan> plan_;
  std::map<std::int64_t, Plan> other_plans_;
  DriftWatch watch_;
  bool retimed_ = false;  // the tables are newer than the plan
  bool drift_said_ = false;
  bool moved_ = false;  // what a rank keeps, since times were measured
  struct Given {
    EpochPlan plan;
    std::string origin;  // of the user's own; empty: this run's
  };
  std::optional<Given> given_;
  struct Cached {
    ProbeCache cache;
    ClusterProfile profile;  // as it is kept
  };
  std::optional<Cached> cached_;
  DriftWatch cache_watch_;
};

}  // namespace onebatch
