// Plans and tables that a run did not make itself: a plan that is repeated, a probe's answer from the cache.
#include "trainer/base/error.hpp"
#include "trainer/base/formatted.hpp"
#include "trainer/plan/plan_check.hpp"
#include "trainer/plan/plan_cluster.hpp"
#include "trainer/plan/plan_notes.hpp"
#include "trainer/run/planning.hpp"
#include "trainer/step/graph_step.hpp"

#include <algorithm>
#include <cmath>

namespace onebatch {
namespace {

// What steps have to show before the cache is not believed.
constexpr DriftWindow k_contradiction = {16, 0.6, 0.75, 0.2, 0.0};
constexpr std::int64_t k_look = 8;  // steps from one look to the next

}  // namespace

std::string RunPlans::why_not(const EpochPlan& plan) const {
  const bool bitwise = configuration_.run.deterministic == Determinism::bitwise;
  return why_not_followed(plan, {.batch = configuration_.batch,
                                 .dataset_size = data_.size(),
                                 .world_size = control_.size(),
                                 .grain = bitwise ? configuration_.batch.micro_batch_size.at(0) : 0,
                                 .lock_step = replica_.runner && replica_.runner->in_lock_step()});
}

void RunPlans::use_plan(EpochPlan plan) {
  if (!plan_ && !given_) given_.emplace(Given{std::move(plan), {}});
}

void RunPlans::repeat_plan(EpochPlan plan, const std::string& origin) {
  const std::string wrong = why_not(plan);
  if (!wrong.empty()) throw AgreedError(ExitCode::user_error, origin + " " + wrong + ": let this run make its own plan");
  given_.emplace(Given{std::move(plan), origin});
}

void RunPlans::adopt() {
  plan_ = given_->plan;
  if (replica_.runner) replica_.runner->keep_in_host(plan_->full.ranks.at(static_cast<std::size_t>(control_.rank())).kept_in_host);
  if (!given_->origin.empty()) {
    const auto devices = comm::all_gather_text(control_, replica_.device.name());
    std::string others;
    for (std::size_t r = 0; r < devices.size(); ++r) {
      if (plan_->full.ranks[r].device != devices[r])
        others += "; rank " + std::to_string(r) + " was " + plan_->full.ranks[r].device + " and is " + devices[r];
    }
    events_.info("the plan is that of " + given_->origin + others);
    rehearse_given();
  }
  given_.reset();
}

bool RunPlans::takes_local_statistics() const {
  return replica_.has_batch_statistics && configuration_.batch_norm.mode == BatchNormMode::local;
}

void RunPlans::say_statistics() const {
  std::int64_t count = 0;
  std::int64_t largest = 0;
  for (const RankPlan& rank : plan_->full.ranks) {
    for (const MicroBatchRun& run : rank.micro_batches) {
      count += run.count;
      largest = std::max(largest, run.size);
    }
  }
  if (!takes_local_statistics() || count < 2) return;
  const std::int64_t least = least_statistics(plan_->full, Statistics::each_micro_batch).value_or(0);
  const std::string sizes = least == largest ? std::to_string(largest) : std::to_string(least) + " to " + std::to_string(largest);
  events_.info("BatchNorm takes its statistics from each micro-batch (of " + sizes +
               " samples), so this plan is part of the result: --plan with the run's plan.json repeats it; batch_norm.mode = \"exact\" has "
               "those of the whole batch");
}

void RunPlans::correct_cache(const StepTotals& totals, std::int64_t step) {
  if (!cached_ || !plan_) return;
  if (!cache_watch_.watches()) cache_watch_.begin(rank_seconds_under(plan_->full, rank_costs(cached_->profile, configuration_.batch)));
  cache_watch_.add(totals.compute_seconds);
  if (step % k_look != 0) return;
  const auto seen = cache_watch_.drift(k_contradiction);
  if (!seen) return;
  const auto off = [](double ratio) { return std::abs(std::log(ratio)); };
  const auto worst = std::ranges::max_element(seen->typical, {}, off) - seen->typical.begin();
  cached_->cache.forget();
  events_.info(formatted("rank %td takes %.2f times what the probe's cache says: the next run measures anew", worst,
                         seen->typical[static_cast<std::size_t>(worst)]));
  cached_.reset();
}

void RunPlans::renew_cache() {
  if (!cached_) return;
  const auto rank = static_cast<std::size_t>(control_.rank());
  cached_->profile.ranks.at(rank).step_seconds = profile_->ranks.at(rank).step_seconds;
  const std::string not_kept = cached_->cache.store(cached_->profile.ranks.at(rank));
  events_.info(not_kept.empty() ? "the probe's cache has the new times" : "the probe's cache keeps nothing: " + not_kept);
  cached_.reset();
}

}  // namespace onebatch
