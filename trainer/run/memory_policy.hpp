// What gives way where memory runs out: what exact BatchNorm keeps goes to the host, or else micro-batches become
// smaller. And the rehearsal, which finds out before the first step.
#pragma once

#include "trainer/run/cluster_tables.hpp"
#include "trainer/step/step.hpp"

namespace onebatch {

/// All is collective, and the same on every rank.
class MemoryPolicy {
 public:
  MemoryPolicy(const PlanningParts& parts, ClusterTables& tables) : parts_(parts), tables_(tables) {}

  /// After steps of that plan in which ranks ran out of memory: per rank the micro-batch that did not fit, or 0.
  void make_room(const std::vector<std::int64_t>& failed_sizes, const Plan& plan);
  /// A plan that was made before: its places hold, and times are measured with them.
  void keep_as_planned(const Plan& plan);
  /// Where shares are too large for what exact BatchNorm keeps of them on a device, or make micro-batches small: times
  /// are measured with it in host memory, and the quicker plan wins.
  void choose_where_to_keep();

  /// One whole step with real collectives, undone afterwards. Where it does not fit on a rank, that rank makes room,
  /// and the plan is what `plan_anew` makes.
  void rehearse(EpochPlan& plan, const std::function<EpochPlan()>& plan_anew);
  /// A rehearsal of the user's own plan changes nothing of it. Throws AgreedError where it does not fit.
  void rehearse_given(const EpochPlan& plan, const std::string& origin);

 private:
  [[nodiscard]] bool may_keep_in_host() const;
  [[nodiscard]] bool may_be_moved(std::size_t rank) const;
  // What such a rank keeps moves to the host where that has room, or else its limit is lowered to `factor` of what did
  // not fit.
  void make_room(const std::vector<std::int64_t>& failed_sizes, const Plan& plan, double factor,
                 const std::string& why);
  void make_room(std::size_t rank, std::int64_t failed_size, double factor, const std::string& why, bool host_has_room);
  // Of each rank the samples whose kept values are to move to its host: 0 afterwards where it has no room for them.
  void leave_what_hosts_do_not_hold(std::vector<std::int64_t>& samples);
  void say_kept_in_host(std::size_t rank, const std::string& why);
  // Whether no rank ran out of memory in it. Those that did make room.
  bool rehearsal_fits(TrainingStep& step, const EpochPlan& plan, double factor);
  // Per rank the largest micro-batch of a rehearsal that ran out of memory, or 0.
  std::vector<std::int64_t> failed_in_rehearsal(TrainingStep& step, const EpochPlan& plan);

  PlanningParts parts_;
  ClusterTables& tables_;
};

}  // namespace onebatch
