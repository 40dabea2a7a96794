// What a run's plans do about memory: where exact BatchNorm keeps what it keeps, and what gives way where memory runs out.
#include "trainer/base/error.hpp"
#include "trainer/base/formatted.hpp"
#include "trainer/device/agreement.hpp"
#include "trainer/device/failed_backward.hpp"
#include "trainer/plan/plan_cluster.hpp"
#include "trainer/probe/memory_use.hpp"
#include "trainer/replica/replica_state.hpp"
#include "trainer/run/planning.hpp"
#include "trainer/step/graph_step.hpp"

#include <algorithm>
#include <cmath>

namespace onebatch {
namespace {

constexpr int k_most_rehearsals = 12;
constexpr double k_lowered_more = 0.6;      // where that was not enough twice
constexpr double k_worth_the_trial = 1.05;  // slower on the devices than without their limits, and host memory is tried

// Ranks whose share of this plan does not fit beside its micro-batches.
std::vector<char> ranks_without_room(const Plan& plan, const std::vector<RankCost>& costs) {
  std::vector<char> lack(costs.size(), 0);
  for (std::size_t r = 0; r < costs.size(); ++r) {
    const std::int64_t fits = costs[r].largest_micro_batch(plan.ranks[r].samples);
    for (const MicroBatchRun& run : plan.ranks[r].micro_batches) lack[r] = lack[r] != 0 || run.size > fits ? 1 : 0;
  }
  return lack;
}

std::optional<Plan> plan_if_any(std::int64_t batch, const std::vector<RankCost>& costs, const PlannerOptions& options) {
  try {
    return plan_global_batch(batch, costs, options);
  } catch (const std::runtime_error&) {  // UserError or DoesNotFitError
    return std::nullopt;
  }
}

}  // namespace

bool RunPlans::lower_limits(const std::vector<std::int64_t>& failed_sizes) {
  if (configuration_.batch.gradient_accumulation_steps) return false;
  const bool measured = profile_.has_value();
  profile();  // a resumed run may have had its plan from the checkpoint: then it is measured now, as things are now
  if (measured) {
    for (std::size_t rank = 0; rank < failed_sizes.size(); ++rank) {
      if (failed_sizes[rank] > 0) make_room(rank, failed_sizes[rank], k_lowered_limit, "it ran out of memory in a step");
    }
    time_what_has_moved();
  }
  return plan_for_lower_limits();
}

// Every rank knows who failed, so all say and do the same.
void RunPlans::make_room(std::size_t rank, std::int64_t failed_size, double factor, const std::string& why) {
  if (!may_keep_in_host() || profile_->ranks[rank].kept_in_host) return lower_limit(rank, failed_size, factor, why);
  keep_in_host(rank, true);
  say_kept_in_host(rank, why);
}

bool RunPlans::may_keep_in_host() const {
  return configuration_.memory.offload == Offload::automatic && configuration_.batch_norm.mode == BatchNormMode::exact;
}

void RunPlans::keep_in_host(std::size_t rank, bool in_host) {
  moved_ = true;
  profile_->ranks[rank].kept_in_host = in_host;
  if (replica_.runner && static_cast<int>(rank) == control_.rank()) replica_.runner->keep_in_host(in_host);
}

void RunPlans::keep_as_planned() {
  for (std::size_t r = 0; r < plan_->full.ranks.size(); ++r) {
    if (plan_->full.ranks[r].kept_in_host) keep_in_host(r, true);
  }
  time_what_has_moved();
}

void RunPlans::say_kept_in_host(std::size_t rank, const std::string& why) {
  events_.fallback("all that exact BatchNorm keeps of rank " + std::to_string(rank) + "'s share on its device",
                   "in host memory, since " + why);
}

void RunPlans::choose_where_to_keep() {
  if (!may_keep_in_host()) return;
  const std::int64_t batch = configuration_.batch.global_batch_size;
  std::optional<Plan> on_devices;
  std::vector<char> moves(profile_->ranks.size(), 0);
  agree_on_rank_0(control_, [&] {
    const auto costs = rank_costs(*profile_, configuration_.batch);
    const PlannerOptions options = planner_options(*profile_, configuration_);
    auto unlimited = costs;
    for (RankCost& cost : unlimited) cost.share_memory.reset();
    const auto wanted = plan_if_any(batch, unlimited, options);
    if (!wanted) return;
    on_devices = plan_if_any(batch, costs, options);
    if (!on_devices || on_devices->predicted_step_seconds > k_worth_the_trial * wanted->predicted_step_seconds)
      moves = ranks_without_room(*wanted, costs);
  });
  control_.broadcast(moves.data(), moves.size(), 0);
  if (std::ranges::find(moves, 1) == moves.end()) return;
  const ClusterProfile before = *profile_;
  const auto move = [&](bool to_host) {
    for (std::size_t r = 0; r < moves.size(); ++r) {
      if (moves[r] != 0) keep_in_host(r, to_host);
    }
  };
  move(true);
  time_what_has_moved();
  char quicker = 1;
  agree_on_rank_0(control_, [&] {
    const Plan in_host = plan_global_batch(batch, rank_costs(*profile_, configuration_.batch), planner_options(*profile_, configuration_));
    quicker = !on_devices || in_host.predicted_step_seconds < on_devices->predicted_step_seconds ? 1 : 0;
    const std::string why =
        on_devices ? formatted("a step takes %.4g s then, not %.4g s", in_host.predicted_step_seconds, on_devices->predicted_step_seconds)
                   : "the device has no room for it";
    for (std::size_t r = 0; r < moves.size() && quicker != 0; ++r) {
      if (moves[r] != 0) say_kept_in_host(r, why);
    }
  });
  control_.broadcast(&quicker, sizeof(quicker), 0);
  if (quicker != 0) return;
  move(false);
  profile_ = before;  // with its times
  moved_ = false;
}

// The way to host memory and back takes time, which the tables do not have yet.
void RunPlans::time_what_has_moved() {
  if (!moved_) return;
  moved_ = false;
  time_anew();
}

bool RunPlans::time_anew() {
  ClusterProfile timed = time_cluster(*profile_, probe_request(), replica_, data_, reducer_, control_);
  std::swap(*profile_, timed);
  bool lowered = false;
  for (std::size_t r = 0; r < timed.ranks.size(); ++r) {
    RankProfile& rank = profile_->ranks[r];
    const RankProfile& before = timed.ranks[r];
    if (rank.max_micro_batch == before.max_micro_batch) continue;
    if (configuration_.batch.gradient_accumulation_steps) {  // there is no other plan: steps do in halves what does not fit
      rank.max_micro_batch = before.max_micro_batch;
      rank.room_bytes = before.room_bytes;
      continue;
    }
    lowered = true;
    say_lowered(r, before.max_micro_batch, "it ran out of memory when its times were measured anew");
  }
  return lowered;
}

void RunPlans::lower_limit(std::size_t rank, std::int64_t failed_size, double factor, const std::string& why) {
  onebatch::lower_limit(profile_->ranks[rank], failed_size, factor);
  say_lowered(rank, failed_size, why);
}

void RunPlans::say_lowered(std::size_t rank, std::int64_t failed_size, const std::string& why) {
  events_.fallback("micro-batches of " + std::to_string(failed_size) + " on rank " + std::to_string(rank),
                   "at most " + std::to_string(profile_->ranks[rank].max_micro_batch) + ", since " + why);
}

void RunPlans::rehearse() {
  const ReplicaSnapshot before(replica_);
  TrainingStep step(replica_, data_, reducer_, control_, clipping_of(configuration_.optimizer));
  for (int attempt = 1; !rehearsal_fits(step, attempt <= 2 ? k_lowered_limit : k_lowered_more); ++attempt) {
    before.restore(replica_);
    if (attempt == k_most_rehearsals)
      throw AgreedError(ExitCode::does_not_fit,
                        "the plan runs out of memory in its rehearsal, however small its micro-batches: raise probe.margin");
    time_what_has_moved();
    plan_ = make_epoch_plan();
  }
  before.restore(replica_);
}

void RunPlans::rehearse_given() {
  const ReplicaSnapshot before(replica_);
  TrainingStep step(replica_, data_, reducer_, control_, clipping_of(configuration_.optimizer));
  const auto failed = failed_in_rehearsal(step);
  before.restore(replica_);
  for (std::size_t rank = 0; rank < failed.size(); ++rank) {
    if (failed[rank] > 0)
      throw AgreedError(ExitCode::does_not_fit, given_->origin + ": micro-batches of " + std::to_string(failed[rank]) +
                                                    " do not fit on rank " + std::to_string(rank) + ": let this run make its own plan");
  }
}

bool RunPlans::rehearsal_fits(TrainingStep& step, double factor) {
  const auto failed = failed_in_rehearsal(step);
  bool fits = true;
  for (std::size_t rank = 0; rank < failed.size(); ++rank) {
    if (failed[rank] == 0) continue;
    fits = false;
    make_room(rank, failed[rank], factor, "the rehearsal ran out of memory");
  }
  return fits;
}

std::vector<std::int64_t> RunPlans::failed_in_rehearsal(TrainingStep& step) {
  const RankPlan& share = plan_->full.ranks.at(static_cast<std::size_t>(control_.rank()));
  std::vector<std::int64_t> samples(static_cast<std::size_t>(plan_->full.global_batch_size));
  const auto mine = slice_of_rank(samples, plan_->full, control_.rank());
  std::ranges::copy(data_.costliest(share.samples), samples.begin() + (mine.data() - samples.data()));
  // This rank's part first and alone: a rank that runs out of memory must not leave the others in a collective.
  std::int64_t failed_size = 0;
  agree(control_, [&] {
    try {
      replica_.gradients.begin_step();
      accumulate_gradient(replica_, data_, mine, share.micro_batches, 0);
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error)) throw;
      for (const MicroBatchRun& run : share.micro_batches) failed_size = std::max(failed_size, run.size);
    }
    if (failed_size == 0) return;
    recover_from_out_of_memory(replica_.device);
  });
  std::vector<std::int64_t> failed(static_cast<std::size_t>(control_.size()));
  control_.all_gather(&failed_size, failed.data(), sizeof(failed_size));
  const bool fits = std::ranges::all_of(failed, [](std::int64_t size) { return size == 0; });
  if (fits) step.run({.global_batch = samples, .plan = plan_->full, .lr = 0.0});
  // A batch of one sample may be too small for BatchNorm: better said now than at the epoch's end.
  if (fits && plan_->last && plan_->last->global_batch_size == 1 && replica_.runner && replica_.runner->shares_statistics())
    step.run({.global_batch = std::span(samples).first(1), .plan = *plan_->last, .lr = 0.0});
  return failed;
}

}  // namespace onebatch
