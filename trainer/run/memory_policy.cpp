#include "trainer/run/memory_policy.hpp"

#include "trainer/base/error.hpp"
#include "trainer/device/agreement.hpp"
#include "trainer/device/compute_device.hpp"
#include "trainer/device/failed_backward.hpp"
#include "trainer/events/own_fallback.hpp"
#include "trainer/models/compiled_program.hpp"
#include "trainer/plan/plan_cluster.hpp"
#include "trainer/probe/memory_use.hpp"
#include "trainer/replica/replica_state.hpp"
#include "trainer/step/graph_step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace onebatch {
namespace {

constexpr int k_most_rehearsals = 12;
constexpr double k_lowered_more = 0.6;      // where that was not enough twice
constexpr double k_worth_the_trial = 1.05;  // slower on the devices than without their limits, and host memory is tried

// Samples of the ranks whose share of this plan does not fit beside its micro-batches; of the others 0.
std::vector<std::int64_t> shares_without_room(const Plan& plan, const std::vector<RankCost>& costs) {
  std::vector<std::int64_t> lack(costs.size(), 0);
  for (std::size_t r = 0; r < costs.size(); ++r) {
    const std::int64_t fits = costs[r].largest_micro_batch(plan.ranks[r].samples);
    for (const MicroBatchRun& run : plan.ranks[r].micro_batches) {
      if (run.size > fits) lack[r] = plan.ranks[r].samples;
    }
  }
  return lack;
}

// Of each rank a number of samples, 0 where it is not meant.
bool concerns_nobody(const std::vector<std::int64_t>& samples) {
  return std::ranges::all_of(samples, [](std::int64_t count) { return count == 0; });
}

std::optional<Plan> plan_if_any(std::int64_t batch, const std::vector<RankCost>& costs, const PlannerOptions& options) {
  try {
    return plan_global_batch(batch, costs, options);
  } catch (const std::runtime_error&) {  // UserError or DoesNotFitError
    return std::nullopt;
  }
}

}  // namespace

// Every rank knows who failed, so all say and do the same.
void MemoryPolicy::make_room(std::size_t rank, std::int64_t failed_size, double factor, const std::string& why,
                             bool host_has_room) {
  const bool is_exact = parts_.configuration.batch_norm.mode == BatchNormMode::exact;
  if (is_exact && !may_be_moved(rank)) {
    tables_.compute_again(rank);
    parts_.events.fallback(fmt::format("native code on rank {}, which keeps all activations", rank),
                           "the program, which computes them again, since " + why);
    return;
  }
  if (!host_has_room) return tables_.lower_limit(rank, failed_size, factor, why);
  tables_.keep_in(rank, SavedPlace::host);
  say_kept_in_host(rank, why);
}

void MemoryPolicy::make_room(const std::vector<std::int64_t>& failed_sizes, const Plan& plan, double factor,
                             const std::string& why) {
  std::vector<std::int64_t> moves(failed_sizes.size(), 0);
  for (std::size_t rank = 0; rank < moves.size(); ++rank) {
    if (failed_sizes[rank] > 0 && may_keep_in_host() && may_be_moved(rank) &&
        !tables_.profile().ranks[rank].kept_in_host)
      moves[rank] = plan.ranks[rank].samples;
  }
  leave_what_hosts_do_not_hold(moves);
  for (std::size_t rank = 0; rank < moves.size(); ++rank) {
    if (failed_sizes[rank] > 0) make_room(rank, failed_sizes[rank], factor, why, moves[rank] > 0);
  }
}

void MemoryPolicy::make_room(const std::vector<std::int64_t>& failed_sizes, const Plan& plan) {
  make_room(failed_sizes, plan, k_lowered_limit, "it ran out of memory in a step");
  tables_.time_what_has_moved();
}

// Pinned memory comes in powers of two, so a GPU's values may take twice their size.
void MemoryPolicy::leave_what_hosts_do_not_hold(std::vector<std::int64_t>& samples) {
  if (concerns_nobody(samples)) return;
  std::vector<std::int64_t> available(samples.size());
  const std::int64_t mine = available_host_memory_bytes();
  parts_.control.all_gather(&mine, available.data(), sizeof(mine));
  const double rounding = parts_.replica.device.device().is_cpu() ? 1.0 : 2.0;
  std::vector<HostShare> shares;
  for (std::size_t r = 0; r < samples.size(); ++r) {
    const RankProfile& rank = tables_.profile().ranks[r];
    const double bytes = rounding * rank.memory.kept_bytes_per_sample * static_cast<double>(samples[r]);
    shares.push_back({rank.host, static_cast<std::int64_t>(bytes), available[r]});
  }
  const std::vector<bool> hold = hosts_hold(shares);
  for (std::size_t r = 0; r < samples.size(); ++r) {
    if (samples[r] == 0 || hold[r]) continue;
    samples[r] = 0;
    parts_.events.info(fmt::format(
        "what exact BatchNorm keeps of rank {}'s share stays on its device: in host memory it may take {}, and {} has "
        "{} left for all its ranks",
        r, amount(static_cast<double>(shares[r].bytes)), shares[r].host, amount(static_cast<double>(available[r]))));
  }
}

// What native code keeps stays where it is.
bool MemoryPolicy::may_be_moved(std::size_t rank) const {
  return compiled_of(*parts_.replica.model) == nullptr || tables_.profile().ranks[rank].recomputes;
}

bool MemoryPolicy::may_keep_in_host() const {
  return parts_.configuration.memory.offload == Offload::automatic &&
         parts_.configuration.batch_norm.mode == BatchNormMode::exact;
}

void MemoryPolicy::keep_as_planned(const Plan& plan) {
  for (std::size_t r = 0; r < plan.ranks.size(); ++r) {
    if (plan.ranks[r].kept_in_host) tables_.keep_in(r, SavedPlace::host);
  }
  tables_.time_what_has_moved();
}

void MemoryPolicy::say_kept_in_host(std::size_t rank, const std::string& why) {
  parts_.events.fallback(fmt::format("all that exact BatchNorm keeps of rank {}'s share on its device", rank),
                         "in host memory, since " + why);
}

void MemoryPolicy::choose_where_to_keep() {
  if (!may_keep_in_host()) return;
  const std::int64_t batch = parts_.configuration.batch.global_batch_size;
  std::optional<Plan> on_devices;
  std::vector<std::int64_t> moves(tables_.profile().ranks.size(), 0);  // samples
  agree_on_rank_0(parts_.control, [&] {
    const auto costs = tables_.costs();
    const PlannerOptions options = tables_.options();
    auto unlimited = costs;
    for (std::size_t r = 0; r < unlimited.size(); ++r) {
      if (may_be_moved(r)) unlimited[r].share_memory.reset();
    }
    const auto wanted = plan_if_any(batch, unlimited, options);
    if (!wanted) return;
    on_devices = plan_if_any(batch, costs, options);
    if (!on_devices || on_devices->predicted_step_seconds > k_worth_the_trial * wanted->predicted_step_seconds)
      moves = shares_without_room(*wanted, costs);
  });
  parts_.control.broadcast(moves.data(), moves.size() * sizeof(moves[0]), 0);
  leave_what_hosts_do_not_hold(moves);
  if (concerns_nobody(moves)) return;
  const ClusterProfile before = tables_.profile();
  const auto move = [&](SavedPlace place) {
    for (std::size_t r = 0; r < moves.size(); ++r) {
      if (moves[r] != 0) tables_.keep_in(r, place);
    }
  };
  move(SavedPlace::host);
  tables_.time_what_has_moved();
  char quicker = 1;
  agree_on_rank_0(parts_.control, [&] {
    const Plan in_host = plan_global_batch(batch, tables_.costs(), tables_.options());
    quicker = !on_devices || in_host.predicted_step_seconds < on_devices->predicted_step_seconds ? 1 : 0;
    const std::string why = on_devices ? fmt::format("a step takes {:.4g} s then, not {:.4g} s",
                                                     in_host.predicted_step_seconds, on_devices->predicted_step_seconds)
                                       : "the device has no room for it";
    for (std::size_t r = 0; r < moves.size() && quicker != 0; ++r) {
      if (moves[r] != 0) say_kept_in_host(r, why);
    }
  });
  parts_.control.broadcast(&quicker, sizeof(quicker), 0);
  if (quicker != 0) return;
  move(SavedPlace::device);
  tables_.go_back_to(before);  // with its times
}

void MemoryPolicy::rehearse(EpochPlan& plan, const std::function<EpochPlan()>& plan_anew) {
  const auto quiet = tables_.stand_still();
  parts_.control.set_activity("rehearsing a step of the plan");
  parts_.free_memory();
  const auto before = kept_state(parts_.replica);
  TrainingStep step(parts_.runner, parts_.data, parts_.reducer, parts_.control,
                    clipping_of(parts_.configuration.optimizer));
  for (int attempt = 1; !rehearsal_fits(step, plan, attempt <= 2 ? k_lowered_limit : k_lowered_more); ++attempt) {
    before->restore(parts_.replica);
    if (attempt == k_most_rehearsals)
      throw AgreedError(
          ExitCode::does_not_fit,
          "the plan runs out of memory in its rehearsal, however small its micro-batches: raise probe.margin");
    tables_.time_what_has_moved();
    plan = plan_anew();
  }
  before->restore(parts_.replica);
  const StepRunner* const apart = parts_.runner.apart();
  const std::string why = apart != nullptr ? apart->gave_way() : "";
  own_fallback(parts_.events, parts_.control, "native code",
               why.empty() ? "" : "run the program uncompiled, since " + why);
}

void MemoryPolicy::rehearse_given(const EpochPlan& plan, const std::string& origin) {
  const auto quiet = tables_.stand_still();
  parts_.control.set_activity("rehearsing a step of the plan");
  parts_.free_memory();
  const auto before = kept_state(parts_.replica);
  TrainingStep step(parts_.runner, parts_.data, parts_.reducer, parts_.control,
                    clipping_of(parts_.configuration.optimizer));
  const auto failed = failed_in_rehearsal(step, plan);
  before->restore(parts_.replica);
  for (std::size_t rank = 0; rank < failed.size(); ++rank) {
    if (failed[rank] > 0)
      throw AgreedError(ExitCode::does_not_fit,
                        fmt::format("{}: micro-batches of {} do not fit on rank {}: let this run make its own plan",
                                    origin, failed[rank], rank));
  }
}

bool MemoryPolicy::rehearsal_fits(TrainingStep& step, const EpochPlan& plan, double factor) {
  const auto failed = failed_in_rehearsal(step, plan);
  if (concerns_nobody(failed)) return true;
  make_room(failed, plan.full, factor, "the rehearsal ran out of memory");
  return false;
}

std::vector<std::int64_t> MemoryPolicy::failed_in_rehearsal(TrainingStep& step, const EpochPlan& plan) {
  const RankPlan& share = plan.full.ranks.at(static_cast<std::size_t>(parts_.control.rank()));
  std::vector<std::int64_t> samples(static_cast<std::size_t>(plan.full.global_batch_size));
  const auto mine = slice_of_rank(samples, plan.full, parts_.control.rank());
  std::ranges::copy(parts_.data.costliest(share.samples), samples.begin() + (mine.data() - samples.data()));
  // This rank's part first and alone: a rank that runs out of memory must not leave the others in a collective.
  std::int64_t failed_size = 0;
  agree(parts_.control, [&] {
    try {
      parts_.replica.gradients.begin_step();
      accumulate_gradient(parts_.runner, parts_.data, mine, share.micro_batches, 0);
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error)) throw;
      for (const MicroBatchRun& run : share.micro_batches) failed_size = std::max(failed_size, run.size);
    }
    if (failed_size == 0) return;
    recover_from_out_of_memory(parts_.replica.device);
  });
  std::vector<std::int64_t> failed(static_cast<std::size_t>(parts_.control.size()));
  parts_.control.all_gather(&failed_size, failed.data(), sizeof(failed_size));
  const bool fits = concerns_nobody(failed);
  if (fits) step.run({.global_batch = samples, .plan = plan.full, .lr = 0.0});
  // A batch of one sample may be too small for BatchNorm: better said now than at the epoch's end.
  if (fits && plan.last && plan.last->global_batch_size == 1 && parts_.replica.shares_statistics)
    step.run({.global_batch = std::span(samples).first(1), .plan = *plan.last, .lr = 0.0});
  return failed;
}

}  // namespace onebatch
