// What the ranks' devices were measured to be: limits and times, which change where a run shows that they are others.
#pragma once

#include "trainer/plan/planner.hpp"
#include "trainer/probe/rank_probe.hpp"
#include "trainer/run/planning_parts.hpp"

#include <functional>
#include <memory>

namespace onebatch {

/// The same on every rank, whose calls are the same.
class ClusterTables {
 public:
  explicit ClusterTables(const PlanningParts& parts) : parts_(parts) {}

  /// What measuring makes, and keeps until it is done: times are those of a machine that does nothing else. It may make
  /// null.
  using StandStill = std::function<std::shared_ptr<void>()>;
  void set_stand_still(StandStill stand_still) { stand_still_ = std::move(stand_still); }
  [[nodiscard]] std::shared_ptr<void> stand_still() const { return stand_still_ ? stand_still_() : nullptr; }

  [[nodiscard]] bool measured() const { return profile_.has_value(); }
  /// Probes, and says what was found. Native code that can compute activations again does so where that serves the
  /// run; under a plan that stays, where it does now. Collective.
  void measure(bool under_a_plan);
  /// Instead of measuring. Throws UserError where its ranks are not the world's.
  void use(ClusterProfile profile);
  [[nodiscard]] const ClusterProfile& profile() const { return *profile_; }
  [[nodiscard]] std::vector<RankCost> costs() const;
  [[nodiscard]] PlannerOptions options() const;

  /// Where exact BatchNorm keeps what it keeps of a rank's share.
  void keep_in(std::size_t rank, SavedPlace place);
  /// With exact BatchNorm: a rank's native code, which keeps its activations, gives way to the program.
  void compute_again(std::size_t rank);
  /// Takes back what was tried in other places: the tables are `before` again.
  void go_back_to(ClusterProfile before);
  /// The largest micro-batch becomes `factor` of what did not fit, which is said.
  void lower_limit(std::size_t rank, std::int64_t failed_size, double factor, const std::string& why);
  /// Steps have lastingly taken so many times what the tables say, per rank.
  void scale_times(const std::vector<double>& factors);
  /// Measures all times as they are now. True where micro-batches did not fit any more, which is said, and limits are
  /// lower. Collective.
  bool time_anew();
  /// The way to host memory and back takes time: the same where something has moved since times were measured.
  /// Collective.
  void time_what_has_moved();

  /// The tables as the probe's cache has them; null where it has none, or not any more.
  [[nodiscard]] const ClusterProfile* cached() const { return cached_ ? &cached_->profile : nullptr; }
  /// The next run measures anew.
  void forget_cached();
  /// Times that were measured anew replace the cache's.
  void renew_cached();

 private:
  void learn_kept();
  [[nodiscard]] ProbeRequest probe_request() const;
  void say_lowered(std::size_t rank, std::int64_t failed_size, const std::string& why);

  PlanningParts parts_;
  StandStill stand_still_;
  std::optional<ClusterProfile> profile_;
  bool moved_ = false;  // what a rank keeps, or by what it computes, since times were measured
  bool knows_kept_ = true;
  struct Cached {
    ProbeCache cache;
    std::optional<ProbeCache> other;
    ClusterProfile profile;  // as it is kept
  };
  std::optional<Cached> cached_;
};

}  // namespace onebatch
