#include "trainer/plan/planner.hpp"

#include "trainer/base/error.hpp"
#include "trainer/plan/grain.hpp"
#include "trainer/plan/lock_step.hpp"
#include "trainer/plan/plan_notes.hpp"
#include "trainer/plan/share_search.hpp"
#include "trainer/plan/straggler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace onebatch {
namespace {

std::vector<MicroBatchRun> runs_of(const std::vector<std::int64_t>& ascending_sizes) {
  std::vector<MicroBatchRun> runs;
  for (const std::int64_t size : ascending_sizes) {
    if (runs.empty() || runs.back().size != size) runs.push_back({size, 0});
    ++runs.back().count;
  }
  return runs;
}

double slowest_of(const std::vector<std::int64_t>& shares, TableSet& tables) {
  double slowest = 0.0;
  for (std::size_t rank = 0; rank < shares.size(); ++rank)
    slowest = std::max(slowest, tables.of(rank).constant_seconds() + tables.of(rank).seconds(shares[rank]));
  return slowest;
}

// What the step would take with these shares; none where a rank cannot do its own.
std::optional<double> seconds_of_shares(const std::vector<std::int64_t>& shares, const std::vector<RankCost>& ranks,
                                        TableSet& tables, double overhead) {
  std::vector<VaryingTime> times;
  times.reserve(shares.size());
  for (std::size_t r = 0; r < shares.size(); ++r) {
    times.push_back({tables.of(r).constant_seconds() + tables.of(r).seconds(shares[r]), ranks[r].jitter});
    if (!std::isfinite(times.back().seconds)) return std::nullopt;
  }
  return median_of_slowest(times) + overhead;
}

std::vector<std::int64_t> equal_shares(std::int64_t batch, std::size_t num_ranks) {
  const auto ranks = static_cast<std::int64_t>(num_ranks);
  std::vector<std::int64_t> shares(num_ranks, batch / ranks);
  std::fill(shares.begin(), shares.begin() + static_cast<std::ptrdiff_t>(batch % ranks), batch / ranks + 1);
  return shares;
}

std::vector<std::int64_t> memory_shares(std::int64_t batch, const std::vector<RankCost>& ranks) {
  std::int64_t total = 0;
  for (const RankCost& rank : ranks) total += rank.max_micro_batch;
  if (total == 0) return {};
  std::vector<std::int64_t> shares;
  std::int64_t running = 0;
  std::int64_t given = 0;
  for (const RankCost& rank : ranks) {
    running += rank.max_micro_batch;
    const auto upto = static_cast<std::int64_t>(static_cast<__int128>(batch) * running / total);
    shares.push_back(upto - given);
    given = upto;
  }
  return shares;
}

RankPlan rank_plan(std::size_t rank, const RankCost& cost, std::vector<MicroBatchRun> runs, double seconds) {
  RankPlan plan{.rank = static_cast<int>(rank),
                .device = cost.device,
                .samples = 0,
                .micro_batches = {},
                .micro_batch_seconds = {},
                .predicted_seconds = seconds,
                .idle_fraction = 0.0,
                .kept_in_host = cost.kept_in_host,
                .recomputes = cost.recomputes};
  for (const auto& [size, count] : runs) {
    plan.samples += size * count;
    plan.micro_batch_seconds.push_back(cost.table.seconds(size));
  }
  plan.micro_batches = std::move(runs);
  return plan;
}

// Against the rank that is done last, whether it has samples or not, or against what all of them take `together` where
// that is more.
void set_idle(Plan& plan, double together = 0.0) {
  double slowest = together;
  for (const RankPlan& rank : plan.ranks) slowest = std::max(slowest, rank.predicted_seconds);
  for (RankPlan& rank : plan.ranks) rank.idle_fraction = slowest > 0.0 ? 1.0 - rank.predicted_seconds / slowest : 0.0;
}

double until_all_are_done(const Plan& plan, const std::vector<RankCost>& ranks) {
  std::vector<VaryingTime> times;
  times.reserve(ranks.size());
  for (std::size_t r = 0; r < ranks.size(); ++r) times.push_back({plan.ranks[r].predicted_seconds, ranks[r].jitter});
  return median_of_slowest(times);
}

// A bucket goes when all ranks have it: what all of them still compute hides it. A backward is two thirds of a
// micro-batch.
double exposed_reduction(const Plan& plan, double seconds) {
  constexpr double k_backward = 2.0 / 3.0;
  double hidden = seconds;
  for (const RankPlan& rank : plan.ranks) {
    if (rank.samples > 0) hidden = std::min(hidden, k_backward * rank.micro_batch_seconds.back());
  }
  return seconds - hidden;
}

Plan assemble(std::int64_t batch, const std::vector<RankCost>& ranks, const PlannerOptions& options,
              const std::vector<std::int64_t>& shares, TableSet& tables) {
  const double limit = slowest_of(shares, tables) * (1.0 + options.few_sizes_tolerance);
  Plan plan;
  plan.global_batch_size = batch;
  plan.ranks.reserve(ranks.size());
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    RankTable& table = tables.of(r);
    const auto sizes = options.few_sizes_tolerance > 0.0
                           ? table.simple_split(shares[r], limit - table.constant_seconds())
                           : table.split(shares[r]);
    const double seconds = table.constant_seconds() + table.seconds_of(sizes);
    plan.ranks.push_back(rank_plan(r, ranks[r], runs_of(sizes), seconds));
  }
  set_idle(plan);
  const double overhead = options.step_overhead_seconds + exposed_reduction(plan, options.overlapped_reduce_seconds);
  plan.predicted_step_seconds = until_all_are_done(plan, ranks) + overhead;
  plan.equal_split_seconds = seconds_of_shares(equal_shares(batch, ranks.size()), ranks, tables, overhead);
  const auto by_memory = memory_shares(batch, ranks);
  if (!by_memory.empty()) plan.memory_split_seconds = seconds_of_shares(by_memory, ranks, tables, overhead);
  return plan;
}

// An even share of the batch is preferred where that is less.
std::vector<RankCost> with_preference(std::int64_t batch, const std::vector<RankCost>& ranks,
                                      const PlannerOptions& options) {
  const auto usable =
      std::ranges::count_if(ranks, [](const RankCost& rank) { return rank.max_micro_batch >= rank.min_micro_batch; });
  std::vector<RankCost> costs = ranks;
  for (RankCost& rank : costs)
    rank.preferred_micro_batch =
        std::max<std::int64_t>(1, std::min(options.preferred_micro_batch, batch / std::max<std::int64_t>(1, usable)));
  return costs;
}

Plan with_notes(Plan plan, const std::vector<RankCost>& ranks, const PlannerOptions& options) {
  note_idle_ranks(plan, ranks, options);
  note_small_statistics(plan, ranks, options);
  return plan;
}

TableSet make_tables_for(std::int64_t batch, const std::vector<RankCost>& ranks, const PlannerOptions& options) {
  const bool any = options.preferred_micro_batch > 1;
  return make_tables(any ? with_preference(batch, ranks, options) : ranks, options.gradient_accumulation_steps);
}

[[noreturn]] void throw_no_split(std::int64_t batch, const std::vector<RankCost>& ranks,
                                 const PlannerOptions& options) {
  std::int64_t most = 0;
  for (const RankCost& rank : ranks) most += rank.max_micro_batch;
  if (most == 0) throw UserError("no rank can compute a single sample: every max_micro_batch is 0");
  const std::string steps =
      options.gradient_accumulation_steps ? fmt::to_string(*options.gradient_accumulation_steps) : "any number of";
  throw UserError(fmt::format(
      "no split of a global batch of {} over {} rank(s) has {} micro-batches each that fit (all largest sizes "
      "together: {}): write batch.gradient_accumulation_steps = \"auto\" or another batch.global_batch_size",
      batch, ranks.size(), steps, most));
}

std::string no_room_text(std::int64_t batch, const std::string& what_there_is) {
  return fmt::format(
      "exact BatchNorm keeps something of every sample until the step ends, and of the global batch of {} the devices "
      "have {}: a run with memory.offload = \"auto\" keeps it in host memory where that has room; or write a smaller "
      "batch.global_batch_size",
      batch, what_there_is);
}

void check_room(std::int64_t batch, const std::vector<RankCost>& ranks, const TableSet& tables) {
  if (std::ranges::none_of(ranks, [](const RankCost& rank) { return rank.share_memory.has_value(); })) return;
  const std::int64_t room = room_for(batch, tables);
  if (room >= batch) return;
  throw DoesNotFitError(no_room_text(batch, fmt::format("memory for {}", room)));
}

// What is fixed leaves a remainder that the model refuses: then fixed sizes are the largest there may be.
Plan plan_without_remainder(std::int64_t batch, const std::vector<RankCost>& ranks, const PlannerOptions& options) {
  std::int64_t least = 1;
  bool fixed = options.gradient_accumulation_steps.has_value();
  std::vector<RankCost> relaxed = ranks;
  for (RankCost& rank : relaxed) {
    least = std::max(least, rank.min_micro_batch);
    fixed = fixed || rank.fixed_micro_batch;
    rank.max_micro_batch = std::min(rank.max_micro_batch, rank.fixed_micro_batch.value_or(rank.max_micro_batch));
    rank.fixed_micro_batch.reset();
  }
  if (least == 1) throw_no_split(batch, ranks, options);
  const std::string needed = fmt::format("micro-batches of at least {}, which this model's BatchNorm needs", least);
  if (!fixed)
    throw UserError(
        fmt::format("a batch of {} sample(s) cannot be split into {}: write another batch.global_batch_size, or, if it "
                    "is the short last batch of an epoch, batch.last_batch = \"drop\"",
                    batch, needed));
  PlannerOptions free = options;
  free.gradient_accumulation_steps.reset();
  Plan plan = plan_global_batch(batch, relaxed, free);
  plan.notes.push_back(
      fmt::format("what [batch] fixes splits {} samples into no {}: some are smaller than fixed", batch, needed));
  return plan;
}

// Where every rank has samples in the last micro-step: else nothing is sent before all is computed.
double exposed_in_lock_step(const Plan& plan, double seconds) {
  const bool all_end_with_samples = std::ranges::all_of(plan.ranks, [](const RankPlan& rank) {
    return !rank.micro_batches.empty() && rank.micro_batches.back().size > 0;
  });
  return all_end_with_samples ? exposed_reduction(plan, seconds) : seconds;
}

Plan assemble_lock_steps(std::int64_t batch, const std::vector<RankCost>& ranks, const PlannerOptions& options,
                         const std::vector<std::vector<MicroBatchRun>>& runs) {
  Plan plan;
  plan.global_batch_size = batch;
  double constant = 0.0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    plan.ranks.push_back(rank_plan(r, ranks[r], runs[r], ranks[r].constant_seconds));
    for (std::size_t i = 0; i < runs[r].size(); ++i)
      plan.ranks[r].predicted_seconds += plan.ranks[r].micro_batch_seconds[i] * static_cast<double>(runs[r][i].count);
    constant = std::max(constant, ranks[r].constant_seconds);
  }
  double together = constant;
  double waiting = 0.0;
  const auto steps = lock_step_times(plan, ranks);
  for (const auto& times : steps) {
    const double slowest = std::ranges::max(times, {}, &VaryingTime::seconds).seconds;
    together += slowest;
    waiting += median_of_slowest(times) - slowest;
  }
  set_idle(plan, together);
  plan.predicted_step_seconds = together + waiting + static_cast<double>(steps.size()) * options.lock_step_seconds +
                                options.step_overhead_seconds +
                                exposed_in_lock_step(plan, options.overlapped_reduce_seconds);
  return plan;
}

Plan assemble_grains(std::int64_t batch, const std::vector<RankCost>& ranks, const PlannerOptions& options,
                     const GrainSplit& split) {
  Plan plan;
  plan.global_batch_size = batch;
  const std::int64_t remainder = batch % options.grain;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    std::vector<MicroBatchRun> runs;
    if (split.calls[r] > 0) runs.push_back({options.grain, split.calls[r]});
    if (remainder > 0 && r == split.last_rank) runs.push_back({remainder, 1});
    double seconds = ranks[r].constant_seconds;
    for (const auto& [size, count] : runs) seconds += static_cast<double>(count) * ranks[r].table.seconds(size);
    plan.ranks.push_back(rank_plan(r, ranks[r], std::move(runs), seconds));
  }
  set_idle(plan);
  plan.predicted_step_seconds = until_all_are_done(plan, ranks) + options.step_overhead_seconds +
                                exposed_reduction(plan, options.overlapped_reduce_seconds);
  return plan;
}

Plan plan_by_grain(std::int64_t batch, const std::vector<RankCost>& ranks, const PlannerOptions& options) {
  const std::int64_t grain = options.grain;
  const GrainSplit split = split_by_grain(batch, grain, ranks);
  if (split.calls.empty()) {
    if (std::ranges::any_of(ranks, [&](const RankCost& rank) { return rank.max_micro_batch >= grain; }))
      throw DoesNotFitError(no_room_text(batch, "too little memory"));
    throw UserError(
        fmt::format("micro-batches of {} fit on no rank: run.deterministic = \"bitwise\" needs batch.micro_batch_size "
                    "= n of a size that does",
                    grain));
  }
  Plan plan = assemble_grains(batch, ranks, options, split);
  const auto seconds_of = [&](std::vector<std::int64_t> calls) -> std::optional<double> {
    const GrainSplit other{std::move(calls), ranks.size() - 1, 0.0};
    if (other.calls.empty()) return std::nullopt;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const std::int64_t remainder = r == other.last_rank ? batch % grain : 0;
      const std::int64_t largest = other.calls[r] > 0 ? grain : remainder;
      if (ranks[r].largest_micro_batch(other.calls[r] * grain + remainder) < largest) return std::nullopt;
    }
    return assemble_grains(batch, ranks, options, other).predicted_step_seconds;
  };
  plan.equal_split_seconds = seconds_of(equal_shares(batch / grain, ranks.size()));
  plan.memory_split_seconds = seconds_of(memory_shares(batch / grain, ranks));
  note_idle_ranks(plan, ranks, options);
  return plan;
}

}  // namespace

Plan plan_global_batch(std::int64_t global_batch_size, const std::vector<RankCost>& ranks,
                       const PlannerOptions& options) {
  if (global_batch_size < 1)
    throw UserError(fmt::format("batch.global_batch_size = {}: write 1 or more", global_batch_size));
  if (ranks.empty()) throw UserError("there are no ranks to plan for");
  if (options.grain > 0) return plan_by_grain(global_batch_size, ranks, options);
  if (options.lock_step) {
    const auto runs = find_lock_steps(global_batch_size, ranks, options);
    if (runs.empty()) return plan_without_remainder(global_batch_size, ranks, options);
    return with_notes(assemble_lock_steps(global_batch_size, ranks, options, runs), ranks, options);
  }
  TableSet tables = make_tables_for(global_batch_size, ranks, options);
  const auto shares = find_shares(global_batch_size, tables);
  if (shares.empty()) {
    check_room(global_batch_size, ranks, tables);
    return plan_without_remainder(global_batch_size, ranks, options);
  }
  return with_notes(assemble(global_batch_size, ranks, options, shares, tables), ranks, options);
}

std::optional<Plan> plan_equal_split(std::int64_t global_batch_size, const std::vector<RankCost>& ranks,
                                     const PlannerOptions& options) {
  TableSet tables = make_tables_for(global_batch_size, ranks, options);
  const auto shares = equal_shares(global_batch_size, ranks.size());
  if (options.lock_step || options.grain > 0 || !std::isfinite(slowest_of(shares, tables))) return std::nullopt;
  return assemble(global_batch_size, ranks, options, shares, tables);
}

EpochPlan plan_epoch(std::int64_t global_batch_size, std::int64_t dataset_size, LastBatch last_batch,
                     const std::vector<RankCost>& ranks, const PlannerOptions& options) {
  EpochPlan plan{plan_global_batch(global_batch_size, ranks, options), std::nullopt};
  const std::int64_t left = dataset_size % global_batch_size;
  if (left == 0 || last_batch == LastBatch::drop) return plan;
  PlannerOptions short_options = options;
  // A short batch need not have as many samples as the fixed number of steps asks for.
  short_options.gradient_accumulation_steps.reset();
  plan.last = plan_global_batch(left, ranks, short_options);
  return plan;
}

}  // namespace onebatch
