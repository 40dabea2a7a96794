#include "trainer/run/cluster_tables.hpp"

#include "comm/stopwatch.hpp"
#include "trainer/base/error.hpp"
#include "trainer/events/own_fallback.hpp"
#include "trainer/plan/drift.hpp"
#include "trainer/plan/plan_cluster.hpp"
#include "trainer/probe/memory_use.hpp"
#include "trainer/probe/probe_cache.hpp"
#include "trainer/probe/probe_identity.hpp"
#include "trainer/run/recomputing_ranks.hpp"
#include "trainer/settings/identity.hpp"
#include "trainer/step/graph_step.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace onebatch {
namespace {

std::optional<std::int64_t> fixed_size_of(const BatchConfiguration& batch, int rank) {
  if (batch.micro_batch_size.empty()) return std::nullopt;
  return batch.micro_batch_size.size() == 1 ? batch.micro_batch_size.front()
                                            : batch.micro_batch_size.at(static_cast<std::size_t>(rank));
}

}  // namespace

ProbeRequest ClusterTables::probe_request() const {
  const BatchConfiguration& batch = parts_.configuration.batch;
  return {.probe = parts_.configuration.probe,
          .fixed_micro_batch = fixed_size_of(batch, parts_.control.rank()),
          .max_size = std::min(batch.global_batch_size, parts_.data.size()),
          .local_statistics = parts_.takes_local_statistics(),
          .recompute = parts_.configuration.memory.recompute,
          .identity = fmt::format("{}{}of {} samples\n", identity_of_probe(parts_.configuration),
                                  identity_of_file(parts_.configuration.model.path), parts_.data.size()),
          .cache_folder = ProbeCache::default_folder()};
}

void ClusterTables::measure(bool under_a_plan) {
  const auto quiet = stand_still();
  parts_.free_memory();
  if (parts_.runner.apart() != nullptr) parts_.runner.apart()->keep_in(SavedPlace::device);
  const comm::Stopwatch watch;
  if (!under_a_plan) keep_activations(parts_.runner);
  const ProbeRequest request = probe_request();
  ProbeAnswer answer = probe_cluster(request, parts_.runner, parts_.data, parts_.reducer, parts_.control);
  for (const RankProfile& rank : answer.profile.ranks) {
    if (rank.recomputes && !under_a_plan)
      parts_.events.info(fmt::format(
          "rank {} computes activations again instead of keeping them: {} fits otherwise", rank.rank,
          request.fixed_micro_batch ? "no micro-batch of the fixed size" : "not even the least micro-batch"));
  }
  if (!under_a_plan) let_ranks_recompute(parts_, request, answer);
  profile_ = answer.profile;
  if (parts_.configuration.probe.cache)
    cached_.emplace(Cached{std::move(answer.cache), std::move(answer.other_cache), std::move(answer.profile)});
  own_fallback(parts_.events, parts_.control, "probe.cache",
               answer.not_kept.empty() ? "" : "keep nothing: " + answer.not_kept);
  parts_.events.send(event::ProfileMeasured{*profile_});
  parts_.events.info(fmt::format("measuring took {:.1f} s", watch.seconds()));
}

void ClusterTables::use(ClusterProfile profile) {
  if (profile.ranks.size() != static_cast<std::size_t>(parts_.control.size()))
    throw UserError(
        fmt::format("the profile has {} ranks, but {} were started", profile.ranks.size(), parts_.control.size()));
  profile_ = std::move(profile);
  const bool recomputes = profile_->ranks[static_cast<std::size_t>(parts_.control.rank())].recomputes;
  if (recomputes && parts_.configuration.memory.recompute == Recompute::automatic) recompute(parts_.runner);
}

std::vector<RankCost> ClusterTables::costs() const {
  return rank_costs(*profile_, parts_.configuration.batch);
}

PlannerOptions ClusterTables::options() const {
  return planner_options(*profile_, parts_.configuration);
}

void ClusterTables::keep_in(std::size_t rank, SavedPlace place) {
  moved_ = true;
  profile_->ranks[rank].kept_in_host = place == SavedPlace::host;
  if (parts_.runner.apart() != nullptr && static_cast<int>(rank) == parts_.control.rank())
    parts_.runner.apart()->keep_in(place);
}

// What the program keeps of a share is less, and not known until it has run.
void ClusterTables::compute_again(std::size_t rank) {
  moved_ = true;
  knows_kept_ = false;
  cached_.reset();  // which has native code's
  RankProfile& profile = profile_->ranks[rank];
  profile.recomputes = true;
  profile.memory.activation_bytes_per_sample += std::exchange(profile.memory.kept_bytes_per_sample, 0.0);
  if (static_cast<int>(rank) == parts_.control.rank()) recompute(parts_.runner);
}

void ClusterTables::go_back_to(ClusterProfile before) {
  profile_ = std::move(before);
  moved_ = false;
}

void ClusterTables::lower_limit(std::size_t rank, std::int64_t failed_size, double factor, const std::string& why) {
  onebatch::lower_limit(profile_->ranks[rank], failed_size, factor);
  say_lowered(rank, failed_size, why);
}

void ClusterTables::say_lowered(std::size_t rank, std::int64_t failed_size, const std::string& why) {
  parts_.events.fallback(fmt::format("micro-batches of {} on rank {}", failed_size, rank),
                         fmt::format("at most {}, since {}", profile_->ranks[rank].max_micro_batch, why));
}

void ClusterTables::scale_times(const std::vector<double>& factors) {
  for (std::size_t r = 0; r < profile_->ranks.size(); ++r) {
    std::vector<TimedSize>& times = profile_->ranks[r].step_seconds;
    times = scaled(CostTable(times), factors[r]).points();
  }
}

void ClusterTables::time_what_has_moved() {
  if (!moved_) return;
  moved_ = false;
  time_anew();
  if (!std::exchange(knows_kept_, true)) learn_kept();
}

void ClusterTables::learn_kept() {
  const double mine = parts_.runner.apart()->kept_bytes_per_sample();
  std::vector<double> kept(profile_->ranks.size());
  parts_.control.all_gather(&mine, kept.data(), sizeof(mine));
  for (std::size_t r = 0; r < kept.size(); ++r) {
    MemoryUse& memory = profile_->ranks[r].memory;
    if (!profile_->ranks[r].recomputes || memory.kept_bytes_per_sample > 0.0) continue;
    memory.kept_bytes_per_sample = std::min(kept[r], memory.activation_bytes_per_sample);
    memory.activation_bytes_per_sample -= memory.kept_bytes_per_sample;
  }
}

bool ClusterTables::time_anew() {
  const auto quiet = stand_still();
  parts_.free_memory();
  ClusterProfile timed =
      time_cluster(*profile_, probe_request(), parts_.runner, parts_.data, parts_.reducer, parts_.control);
  std::swap(*profile_, timed);
  bool lowered = false;
  for (std::size_t r = 0; r < timed.ranks.size(); ++r) {
    RankProfile& rank = profile_->ranks[r];
    const RankProfile& before = timed.ranks[r];
    if (rank.max_micro_batch == before.max_micro_batch) continue;
    if (parts_.configuration.batch
            .gradient_accumulation_steps) {  // there is no other plan: steps do in halves what does not fit
      rank.max_micro_batch = before.max_micro_batch;
      rank.room_bytes = before.room_bytes;
      continue;
    }
    lowered = true;
    say_lowered(r, before.max_micro_batch, "it ran out of memory when its times were measured anew");
  }
  return lowered;
}

void ClusterTables::forget_cached() {
  cached_->cache.forget();
  if (cached_->other) cached_->other->forget();
  cached_.reset();
}

void ClusterTables::renew_cached() {
  if (!cached_) return;
  const auto rank = static_cast<std::size_t>(parts_.control.rank());
  cached_->profile.ranks.at(rank).step_seconds = profile_->ranks.at(rank).step_seconds;
  const std::string not_kept = cached_->cache.store(cached_->profile.ranks.at(rank));
  parts_.events.info(not_kept.empty() ? "the probe's cache has the new times"
                                      : "the probe's cache keeps nothing: " + not_kept);
  cached_.reset();
}

}  // namespace onebatch
