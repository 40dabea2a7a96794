#include "trainer/run/recomputing_ranks.hpp"

#include "trainer/models/compiled_program.hpp"
#include "trainer/plan/plan_cluster.hpp"
#include "trainer/step/graph_step.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace onebatch {
namespace {

constexpr double k_gain = 0.95;  // of a sample's time: what is nearer is within what times swing by

// The larger its micro-batches, the less a sample takes, up to the largest that fits.
bool gains_by_size(const RankProfile& rank) {
  const CostTable times(rank.step_seconds);
  const std::int64_t most = rank.max_micro_batch;
  const std::int64_t half = most / 2;
  if (half < rank.min_micro_batch) return true;  // nobody knows
  return times.seconds(most) / static_cast<double>(most) < k_gain * times.seconds(half) / static_cast<double>(half);
}

bool may_gain(const ClusterProfile& profile, const ProbeRequest& request) {
  const std::int64_t most = std::min(request.max_size, request.probe.max_val);
  return std::ranges::any_of(profile.ranks, [&](const RankProfile& rank) {
    return !rank.recomputes && rank.largest_micro_batch < most && gains_by_size(rank);
  });
}

}  // namespace

void let_ranks_recompute(const PlanningParts& parts, const ProbeRequest& request, ProbeAnswer& answer) {
  const MayBeCompiled* const owner = compiled_of(*parts.replica.model);
  if (owner == nullptr || !owner->compiled->may_recompute() || request.recompute != Recompute::automatic) return;
  if (!parts.configuration.batch.micro_batch_size.empty() || !may_gain(answer.profile, request)) return;
  const bool recomputed_before = recomputes(parts.runner);
  owner->compiled->recompute(true);
  ProbeRequest other = request;
  other.identity += "computing activations again\n";
  ProbeAnswer again = probe_cluster(other, parts.runner, parts.data, parts.reducer, parts.control);
  const std::vector<bool> chosen = ranks_that_should_recompute(answer.profile, again.profile, parts.configuration);
  const auto mine = static_cast<std::size_t>(parts.control.rank());
  owner->compiled->recompute(recomputed_before || chosen[mine]);
  if (answer.not_kept.empty()) answer.not_kept = again.not_kept;
  if (chosen[mine]) answer.cache = std::move(again.cache);
  const double before = planned_step_seconds(answer.profile, parts.configuration);
  for (std::size_t r = 0; r < chosen.size(); ++r) {
    if (chosen[r]) answer.profile.ranks[r] = again.profile.ranks[r];
  }
  const double after = planned_step_seconds(answer.profile, parts.configuration);
  for (std::size_t r = 0; r < chosen.size(); ++r) {
    if (chosen[r])
      parts.events.info(
          fmt::format("rank {} computes activations again instead of keeping them, for micro-batches of up "
                      "to {}: a step is planned to take {:.2f} of the time",
                      r, answer.profile.ranks[r].max_micro_batch, after / before));
  }
}

}  // namespace onebatch
