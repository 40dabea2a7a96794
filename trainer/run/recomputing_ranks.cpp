#include "trainer/run/recomputing_ranks.hpp"

#include "trainer/base/error.hpp"
#include "trainer/device/agreement.hpp"
#include "trainer/models/compiled_program.hpp"
#include "trainer/plan/plan_cluster.hpp"
#include "trainer/replica/replica_state.hpp"
#include "trainer/step/graph_step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <utility>

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

// Where it lies in host memory.
ClusterProfile without_kept(ClusterProfile profile) {
  for (RankProfile& rank : profile.ranks) rank.memory.kept_bytes_per_sample = 0.0;
  return profile;
}

// Memory holds too little of what a rank keeps of its whole share, as native code does with exact BatchNorm.
bool shares_are_limited(const ClusterProfile& profile, const Configuration& configuration) {
  return planned_step_seconds(without_kept(profile), configuration) <
         k_gain * planned_step_seconds(profile, configuration);
}

class Choice {
 public:
  Choice(const PlanningParts& parts, CompiledProgram& code, const ProbeRequest& request)
      : parts_(parts), code_(code), request_(request) {}

  void run(ProbeAnswer& answer) {
    if (!all_may_recompute() || !on_rank_0([&] { return may_gain(answer.profile) ? "1" : "0"; }).starts_with('1'))
      return;
    const bool recomputed_before = code_.recomputes();
    std::optional<ProbeAnswer> again = probe_again();
    if (!again) return code_.recompute(recomputed_before);
    const std::string chosen = on_rank_0([&] { return chosen_of(answer.profile, again->profile); });
    const auto mine = static_cast<std::size_t>(parts_.control.rank());
    code_.recompute(recomputed_before || chosen[mine] == '1');
    if (answer.not_kept.empty()) answer.not_kept = again->not_kept;
    answer.other_cache.emplace(std::move(again->cache));
    if (chosen[mine] == '1') std::swap(answer.cache, *answer.other_cache);
    const double before = planned_step_seconds(answer.profile, parts_.configuration);
    for (std::size_t r = 0; r < chosen.size(); ++r) {
      if (chosen[r] == '1') answer.profile.ranks[r] = again->profile.ranks[r];
    }
    say(chosen, answer.profile, planned_step_seconds(answer.profile, parts_.configuration) / before);
  }

 private:
  bool all_may_recompute() {
    std::int64_t all = code_.may_recompute() ? 1 : 0;
    parts_.control.all_reduce(&all, 1, comm::ScalarType::int64, comm::ReduceOp::min);
    return all == 1;
  }

  std::string on_rank_0(const std::function<std::string()>& answer) {
    std::string text;
    agree_on_rank_0(parts_.control, [&] { text = answer(); });
    return comm::broadcast_text(parts_.control, text, 0);
  }

  bool may_gain(const ClusterProfile& profile) const {
    if (shares_are_limited(profile, parts_.configuration)) return true;
    if (!parts_.configuration.batch.micro_batch_size.empty()) return false;
    const std::int64_t most = std::min(request_.max_size, request_.probe.max_val);
    const auto is_limited = [&](const RankProfile& rank) {
      return !rank.recomputes && rank.largest_micro_batch < most;
    };
    if (std::ranges::none_of(profile.ranks, is_limited)) return false;
    return std::isinf(planned_step_seconds(profile, parts_.configuration)) ||
           std::ranges::any_of(profile.ranks,
                               [&](const RankProfile& rank) { return is_limited(rank) && gains_by_size(rank); });
  }

  // None where not even the least micro-batch fits, of a variant that was to take less.
  std::optional<ProbeAnswer> probe_again() {
    code_.recompute(true);
    ProbeRequest other = request_;
    other.identity += "computing activations again\n";
    const auto before = kept_state(parts_.replica);
    try {
      return probe_cluster(other, parts_.runner, parts_.data, parts_.reducer, parts_.control);
    } catch (const AgreedError& error) {
      if (error.code() != ExitCode::does_not_fit) throw;
    }
    before->restore(parts_.replica);
    return std::nullopt;
  }

  std::string chosen_of(const ClusterProfile& keeping, const ClusterProfile& recomputing) const {
    std::vector<bool> again = ranks_that_should_recompute(keeping, recomputing, parts_.configuration);
    const bool may_move = code_.stands_back() && parts_.configuration.memory.offload == Offload::automatic;
    if (may_move && std::ranges::find(again, true) == again.end() &&
        std::isinf(planned_step_seconds(keeping, parts_.configuration)))
      again = ranks_that_should_recompute(keeping, without_kept(recomputing), parts_.configuration);
    std::string chosen;
    for (const bool one : again) chosen += one ? '1' : '0';
    return chosen;
  }

  void say(const std::string& chosen, const ClusterProfile& profile, double share) {
    for (std::size_t r = 0; r < chosen.size(); ++r) {
      if (chosen[r] == '1')
        parts_.events.info(
            fmt::format("rank {} computes activations again instead of keeping them, for micro-batches of up to {}: {}",
                        r, profile.ranks[r].max_micro_batch,
                        share > 0.0 ? fmt::format("a step is planned to take {:.2f} of the time", share)
                                    : std::string("there is no plan otherwise")));
    }
  }

  const PlanningParts& parts_;
  CompiledProgram& code_;
  const ProbeRequest& request_;
};

}  // namespace

void let_ranks_recompute(const PlanningParts& parts, const ProbeRequest& request, ProbeAnswer& answer) {
  const MayBeCompiled* const owner = compiled_of(*parts.replica.model);
  if (owner == nullptr || request.recompute != Recompute::automatic) return;
  Choice(parts, *owner->compiled, request).run(answer);
}

}  // namespace onebatch
