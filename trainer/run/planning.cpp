#include "trainer/run/planning.hpp"

#include "trainer/base/error.hpp"
#include "trainer/base/formatted.hpp"
#include "trainer/device/agreement.hpp"
#include "trainer/documents/documents.hpp"
#include "trainer/io/named_tensors.hpp"
#include "trainer/plan/plan_cluster.hpp"
#include "trainer/probe/probe_cache.hpp"
#include "trainer/settings/identity.hpp"
#include "trainer/step/graph_step.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace onebatch {
namespace {

std::optional<std::int64_t> fixed_size_of(const BatchConfiguration& batch, int rank) {
  if (batch.micro_batch_size.empty()) return std::nullopt;
  return batch.micro_batch_size.size() == 1 ? batch.micro_batch_size.front() : batch.micro_batch_size.at(static_cast<std::size_t>(rank));
}

}  // namespace

RunPlans::RunPlans(const Configuration& configuration, Replica& replica, const Dataset& data, GradientReducer& reducer,
                   comm::Communicator& control, Observer& observer)
    : configuration_(configuration), replica_(replica), data_(data), reducer_(reducer), control_(control), observer_(observer) {}

ProbeRequest RunPlans::probe_request() const {
  const BatchConfiguration& batch = configuration_.batch;
  return {.probe = configuration_.probe,
          .fixed_micro_batch = fixed_size_of(batch, control_.rank()),
          .max_size = std::min(batch.global_batch_size, data_.size()),
          .local_statistics = takes_local_statistics(),
          .recompute = configuration_.memory.recompute,
          .identity = identity_of_probe(configuration_) + "of " + std::to_string(data_.size()) + " samples\n",
          .cache_folder = ProbeCache::default_folder()};
}

const ClusterProfile& RunPlans::profile() {
  if (profile_) return *profile_;
  if (replica_.runner) replica_.runner->keep_in_host(false);
  ProbeAnswer answer = probe_cluster(probe_request(), replica_, data_, reducer_, control_);
  profile_ = answer.profile;
  if (configuration_.probe.cache) cached_.emplace(Cached{std::move(answer.cache), std::move(answer.profile)});
  if (!answer.not_kept.empty() && control_.rank() == 0) observer_.fallback("probe.cache", "keep nothing: " + answer.not_kept);
  if (control_.rank() == 0) {
    for (const RankProfile& rank : profile_->ranks) {
      if (rank.recomputes)
        observer_.info("rank " + std::to_string(rank.rank) +
                       " computes activations again instead of keeping them: not even the least micro-batch fits otherwise");
    }
    observer_.profile_measured(*profile_);
  }
  if (plan_) keep_as_planned();
  return *profile_;
}

void RunPlans::use_profile(ClusterProfile profile) {
  if (profile.ranks.size() != static_cast<std::size_t>(control_.size())) {
    throw UserError("the profile has " + std::to_string(profile.ranks.size()) + " ranks, but " + std::to_string(control_.size()) +
                    " were started");
  }
  profile_ = std::move(profile);
}

const EpochPlan& RunPlans::epoch_plan() {
  if (plan_) return *plan_;
  if (given_) {
    adopt();
  } else {
    profile();
    choose_where_to_keep();
    plan_ = make_epoch_plan();
    rehearse();
  }
  if (control_.rank() != 0) return *plan_;
  observer_.plan_made(*plan_);
  say_statistics();
  return *plan_;
}

const Plan& RunPlans::plan_of(std::int64_t batch_size) {
  const EpochPlan& plans = epoch_plan();
  if (plans.full.global_batch_size == batch_size) return plans.full;
  if (plans.last && plans.last->global_batch_size == batch_size) return *plans.last;
  const auto found = other_plans_.find(batch_size);
  if (found != other_plans_.end()) return found->second;
  profile();
  return other_plans_.emplace(batch_size, make_plan(batch_size)).first->second;
}

EpochPlan RunPlans::make_epoch_plan() {
  const BatchConfiguration& batch = configuration_.batch;
  const bool drop = batch.last_batch == LastBatch::drop;
  return plan_on_rank_0([&] {
    return to_json(
        plan_epoch(batch.global_batch_size, data_.size(), drop, rank_costs(*profile_, batch), planner_options(*profile_, configuration_)));
  });
}

Plan RunPlans::make_plan(std::int64_t batch_size) {
  const BatchConfiguration& batch = configuration_.batch;
  return plan_on_rank_0([&] {
           return to_json(plan_global_batch(batch_size, rank_costs(*profile_, batch), planner_options(*profile_, configuration_)));
         })
      .full;
}

EpochPlan RunPlans::plan_on_rank_0(const std::function<std::string()>& plan) const {
  std::string text;
  agree_on_rank_0(control_, [&] { text = plan(); });
  return parse_epoch_plan(comm::broadcast_text(control_, text, 0), "rank 0's plan");
}

void RunPlans::watch() {
  std::vector<double> predicted(static_cast<std::size_t>(control_.size()));
  for (std::size_t r = 0; r < predicted.size(); ++r) predicted[r] = plan_->full.ranks[r].predicted_seconds;
  // A plan that was kept while its tables were measured anew predicts something else than it says.
  if (retimed_ && control_.rank() == 0) predicted = rank_seconds_under(plan_->full, rank_costs(*profile_, configuration_.batch));
  control_.broadcast(predicted.data(), predicted.size() * sizeof(double), 0);
  watch_.begin(std::move(predicted));
}

bool RunPlans::follow_drift(const StepTotals& totals, std::int64_t step) {
  const bool followed = answer_drift(totals, step);
  correct_cache(totals, step);
  return followed;
}

bool RunPlans::answer_drift(const StepTotals& totals, std::int64_t step) {
  if (control_.size() == 1 || !plan_ || drift_said_) return false;
  if (!watch_.watches()) watch();
  watch_.add(totals.compute_seconds);
  for (const DriftSign& sign : watch_.signs(step)) {  // the same on every rank
    const Gain gain = gain_of_a_new_plan(sign);
    if (gain.worth) return may_follow_drift(gain) && replan_for_drift(sign, gain.measured, step);
  }
  return false;
}

RunPlans::Gain RunPlans::gain_of_a_new_plan(const DriftSign& sign) {
  Gain gain;
  gain.measured = !profile_.has_value();
  profile();  // a resumed run may have had its plan from the checkpoint: then it is measured now, as things are now
  agree_on_rank_0(control_, [&] {
    const std::vector<double>& typical = sign.drift.typical;
    for (std::size_t r = 0; r < typical.size(); ++r) {
      if (std::abs(std::log(typical[r])) > std::abs(std::log(typical[gain.rank]))) gain.rank = r;
    }
    gain.factor = typical[gain.rank];
    gain.worth = gain.measured || promises_a_new_plan(sign, plan_->full, rank_costs(*profile_, configuration_.batch),
                                                      planner_options(*profile_, configuration_));
  });
  control_.broadcast(&gain, sizeof(gain), 0);
  return gain;
}

bool RunPlans::may_follow_drift(const Gain& gain) {
  const Replan wanted = configuration_.batch.replan;
  const bool exact = configuration_.batch_norm.mode == BatchNormMode::exact;
  if (wanted == Replan::always || (wanted == Replan::automatic && (exact || !replica_.has_batch_statistics))) return true;
  drift_said_ = true;
  if (control_.rank() != 0) return false;
  observer_.warn(
      formatted("rank %zu takes %.2f times what was measured, and another plan would be quicker; the plan stays, since ", gain.rank,
                gain.factor) +
      (wanted == Replan::never ? "batch.replan is \"never\"" : "BatchNorm's statistics, and so the result, would change with it") +
      ": write batch.replan = \"always\" for a new one");
  return false;
}

// What is off by much is measured anew, and what a busy moment has made up ends here. `measured`: the tables are of just now.
bool RunPlans::replan_for_drift(const DriftSign& sign, bool measured, std::int64_t step) {
  const bool corrects = !measured && is_correction(sign.drift);
  bool lowered = false;
  if (corrects) {
    for (std::size_t r = 0; r < profile_->ranks.size(); ++r) {
      std::vector<TimedSize>& times = profile_->ranks[r].step_seconds;
      times = scaled(CostTable(times), sign.drift.typical[r]).points();
    }
  } else if (!measured) {
    lowered = time_anew();
    renew_cache();
  }
  retimed_ = true;
  watch_.answered(step, !corrects);
  if (lowered) return plan_for_lower_limits();
  EpochPlan then = make_epoch_plan();
  double seconds[2] = {};  // now, then
  if (control_.rank() == 0) {
    const auto costs = rank_costs(*profile_, configuration_.batch);
    seconds[0] = seconds_under(plan_->full, costs);
    seconds[1] = seconds_under(then.full, costs);
  }
  control_.broadcast(seconds, sizeof(seconds), 0);
  watch_.stop();
  if (!worth_a_new_plan(seconds[0], seconds[1], sign.recent, sign.window)) return false;
  forget_plans();
  plan_ = std::move(then);
  if (control_.rank() != 0) return true;
  observer_.fallback(
      "the plan as it was",
      formatted("a new one: the devices' speeds have changed, and the slowest rank's %.4g s become %.4g s", seconds[0], seconds[1]));
  observer_.plan_made(*plan_);
  return true;
}

// Whatever it wins: what the plan was made for is not there any more.
bool RunPlans::plan_for_lower_limits() {
  forget_plans();
  epoch_plan();
  return true;
}

void RunPlans::forget_plans() {
  plan_.reset();
  other_plans_.clear();
  watch_.stop();
  cache_watch_.stop();
}

}  // namespace onebatch
