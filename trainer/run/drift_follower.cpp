#include "trainer/run/drift_follower.hpp"

#include "trainer/device/agreement.hpp"
#include "trainer/plan/plan_cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace onebatch {
namespace {

// What steps have to show before the cache is not believed.
constexpr DriftWindow k_contradiction = {16, 0.6, 0.75, 0.2, 0.0};
constexpr std::int64_t k_look = 8;  // steps from one look to the next

}  // namespace

bool DriftFollower::follow(const StepTotals& totals, std::int64_t step) {
  const bool followed = answer(totals, step);
  correct_cache(totals, step);
  return followed;
}

void DriftFollower::look_at_edition() {
  if (edition_ == book_.edition()) return;
  edition_ = book_.edition();
  watch_.stop();
  cache_watch_.stop();
}

void DriftFollower::watch() {
  const Plan& plan = book_.current()->full;
  std::vector<double> predicted(static_cast<std::size_t>(parts_.control.size()));
  for (std::size_t r = 0; r < predicted.size(); ++r) {
    if (plan.ranks[r].samples > 0) predicted[r] = plan.ranks[r].predicted_seconds;
  }
  // A plan that was kept while its tables were measured anew predicts something else than it says.
  if (retimed_) agree_on_rank_0(parts_.control, [&] { predicted = rank_seconds_under(plan, tables_.costs()); });
  parts_.control.broadcast(predicted.data(), predicted.size() * sizeof(double), 0);
  watch_.begin(std::move(predicted));
}

bool DriftFollower::answer(const StepTotals& totals, std::int64_t step) {
  look_at_edition();
  if (parts_.control.size() == 1 || book_.current() == nullptr || said_) return false;
  const bool would_measure = !tables_.measured();  // which borrows the replica for a plan that would not be followed
  if (would_measure && parts_.configuration.batch.replan == Replan::never) return false;
  if (!watch_.watches()) watch();
  watch_.add(totals.compute_seconds);
  for (const LastingDrift& lasting : watch_.detect(step)) {  // the same on every rank
    const Gain gain = gain_of_a_new_plan(lasting);
    if (gain.worth) return may_follow(gain) && replan(lasting, gain, step);
  }
  return false;
}

DriftFollower::Gain DriftFollower::gain_of_a_new_plan(const LastingDrift& lasting) {
  Gain gain;
  gain.measured = !tables_.measured();
  book_.profile();  // a resumed run may have had its plan from the checkpoint: then it is measured now, as things are
                    // now
  agree_on_rank_0(parts_.control, [&] {
    const std::vector<double>& typical = lasting.drift.typical;
    for (std::size_t r = 0; r < typical.size(); ++r) {
      if (std::abs(std::log(typical[r])) > std::abs(std::log(typical[gain.rank]))) gain.rank = r;
    }
    gain.factor = typical[gain.rank];
    gain.worth =
        gain.measured || promises_a_new_plan(lasting, book_.current()->full, tables_.costs(), tables_.options());
  });
  parts_.control.broadcast(&gain, sizeof(gain), 0);
  return gain;
}

bool DriftFollower::may_follow(const Gain& gain) {
  const Replan wanted = parts_.configuration.batch.replan;
  const bool exact = parts_.configuration.batch_norm.mode == BatchNormMode::exact;
  if (wanted == Replan::always || (wanted == Replan::automatic && (exact || !parts_.replica.has_batch_statistics)))
    return true;
  said_ = true;
  const char* why = wanted == Replan::never ? "batch.replan is \"never\"" : "a new one changes BatchNorm's statistics";
  parts_.events.warn(fmt::format(
      "rank {} takes {:.2f} times what was measured; the plan stays: {} (batch.replan = \"always\" replans)", gain.rank,
      gain.factor, why));
  return false;
}

// What is off by much is measured anew, and what a busy moment has made up ends here.
bool DriftFollower::replan(const LastingDrift& lasting, const Gain& gain, std::int64_t step) {
  const bool corrects = !gain.measured && is_correction(lasting.drift);
  bool lowered = false;
  if (corrects) {
    tables_.scale_times(lasting.drift.typical);
  } else if (!gain.measured) {
    lowered = tables_.time_anew();
    tables_.renew_cached();
  }
  retimed_ = true;
  watch_.answered(step, corrects ? DriftWatch::Answer::tables_scaled : DriftWatch::Answer::tables_measured);
  if (!lowered) return replan_where_it_wins(lasting);
  book_.plan_anew();
  return true;
}

bool DriftFollower::replan_where_it_wins(const LastingDrift& lasting) {
  EpochPlan then = book_.make_epoch_plan();
  double seconds[2] = {};  // now, then
  agree_on_rank_0(parts_.control, [&] {
    const auto costs = tables_.costs();
    seconds[0] = seconds_under(book_.current()->full, costs);
    seconds[1] = seconds_under(then.full, costs);
  });
  parts_.control.broadcast(seconds, sizeof(seconds), 0);
  watch_.stop();
  if (!worth_a_new_plan(seconds[0], seconds[1], lasting.recent, lasting.window)) return false;
  book_.replace(std::move(then));
  parts_.events.fallback({}, fmt::format("replanned: device speeds changed; predicted compute {:.3g} -> {:.3g} ms",
                                         1e3 * seconds[0], 1e3 * seconds[1]));
  parts_.events.send(event::PlanMade{*book_.current()});
  return true;
}

void DriftFollower::correct_cache(const StepTotals& totals, std::int64_t step) {
  if (parts_.graphs != nullptr && parts_.graphs->is_holding())
    return;  // the cache's times are of micro-batches without them
  look_at_edition();
  const ClusterProfile* cached = tables_.cached();
  if (cached == nullptr || book_.current() == nullptr) return;
  if (!cache_watch_.watches())
    cache_watch_.begin(rank_seconds_under(book_.current()->full, rank_costs(*cached, parts_.configuration.batch)));
  cache_watch_.add(totals.compute_seconds);
  if (step % k_look != 0) return;
  const auto seen = cache_watch_.drift(k_contradiction);
  if (!seen) return;
  const auto off = [](double ratio) { return std::abs(std::log(ratio)); };
  const auto worst = std::ranges::max_element(seen->typical, {}, off) - seen->typical.begin();
  tables_.forget_cached();
  parts_.events.info(fmt::format("rank {} takes {:.2f} times what the probe's cache says: the next run measures anew",
                                 worst, seen->typical[static_cast<std::size_t>(worst)]));
}

}  // namespace onebatch
