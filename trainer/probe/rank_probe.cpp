#include "trainer/probe/rank_probe.hpp"

#include "comm/error.hpp"
#include "comm/statistics.hpp"
#include "comm/stopwatch.hpp"
#include "trainer/base/error.hpp"
#include "trainer/device/agreement.hpp"
#include "trainer/device/failed_backward.hpp"
#include "trainer/device/no_room.hpp"
#include "trainer/documents/documents.hpp"
#include "trainer/gradients/clipping.hpp"
#include "trainer/probe/memory_use.hpp"
#include "trainer/probe/probe_cache.hpp"
#include "trainer/probe/probe_identity.hpp"
#include "trainer/probe/size_probe.hpp"
#include "trainer/probe/timing.hpp"
#include "trainer/replica/replica_state.hpp"
#include "trainer/step/graph_step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace onebatch {
namespace {

// Between these the timing lasts as long as the slowest rank needs for its repeats; all tries keep to the upper one.
constexpr double k_least_timing_seconds = 0.3;  // for each repeat that is asked for
constexpr double k_most_timing_seconds = 20.0;
constexpr std::int64_t k_most_timings = 3;
constexpr int k_most_sizes = 8;
constexpr int k_most_sizes_of_fixed = 3;  // all micro-batches are of the largest, but for one that is left over
constexpr int k_times_in_a_row = 2;
constexpr double k_other_times = 1.2;  // by this factor, and they are not those that the cache has
constexpr double k_other_peak = 1.2;   // the same of memory: another model than the cache's

bool are_within(double factor, double a, double b) {
  return a < factor * b && b < factor * a;
}

enum class Confirmed { no, as_it_was, with_new_times };

class RankProbe {
 public:
  RankProbe(const ProbeRequest& request, MicroBatchRunner& runner, const Dataset& data, GradientReducer& reducer,
            comm::Communicator& control)
      : request_(request),
        runner_(runner),
        replica_(runner.replica()),
        reducer_(reducer),
        control_(control),
        sizes_(runner, data) {}

  RankProfile measure() {
    RankProfile profile;
    profile.rank = control_.rank();
    profile.host = comm::host_name();
    profile.device = replica_.device.name();
    profile.memory_limit_bytes = replica_.device.memory_limit_bytes();
    replica_.device.empty_cache();  // in mid-run it holds what micro-batches have left
    profile.resident_bytes = replica_.device.current_bytes();
    profile.memory = standing_memory(profile.resident_bytes);
    agree(control_, [&] { find_sizes(profile); });
    measure_reduction(profile);
    measure_times(profile);
    return profile;
  }

  /// Whether an earlier answer still holds: all ranks try their largest size again, and take their times anew where
  /// they have changed.
  Confirmed confirm(RankProfile& known) {
    control_.set_activity("confirming what an earlier probe has found");
    if (known.recomputes) recompute(runner_);
    Trial trial;
    agree(control_, [&] { trial = run_trial(known.largest_micro_batch).trial; });
    const double expected = CostTable(known.step_seconds).seconds(known.largest_micro_batch);
    const bool as_quick = are_within(k_other_times, trial.seconds, expected);
    const bool as_large =
        are_within(k_other_peak, static_cast<double>(trial.peak_bytes), static_cast<double>(known.peak_bytes));
    double bad[2] = {trial.fits && as_large ? 0.0 : 1.0, as_quick ? 0.0 : 1.0};
    control_.all_reduce(bad, 2, comm::ScalarType::float64, comm::ReduceOp::max);
    if (bad[0] > 0.0) return Confirmed::no;
    known.rank = control_.rank();
    known.recomputes = recomputes_by_itself();
    known.trials = {trial};
    known.from_cache = true;
    if (bad[1] == 0.0) return Confirmed::as_it_was;
    measure_times(known);
    return Confirmed::with_new_times;
  }

  // What a busy machine has spoiled on any rank is measured again, by all, where repeats are asked for at all. A calm
  // try counts alone; where there is none, all together do: so busy is the machine.
  void measure_times(RankProfile& profile) {
    auto sizes = sizes_to_time(profile.min_micro_batch, profile.max_micro_batch,
                               request_.fixed_micro_batch ? k_most_sizes_of_fixed : k_most_sizes);
    Times times;
    double worst = HUGE_VAL;
    const double window = agreed_window(profile, sizes);
    const auto tries = std::clamp<std::int64_t>(static_cast<std::int64_t>(k_most_timing_seconds / window), 1,
                                                std::min(k_most_timings, request_.probe.steps_per_trial));
    for (std::int64_t attempt = 0; attempt < tries && worst > k_spoiled_spread; ++attempt) {
      Times latest = time_once(profile, sizes, window);
      if (attempt == 0 || profile.times_spread > k_spoiled_spread) {
        const double spread = spread_of(latest.micro_steps);
        if (spread <= k_spoiled_spread)
          times = std::move(latest);
        else
          times.add(latest);
        profile.times_spread = spread_of(times.micro_steps);
        profile.jitter = jitter_of(times.micro_steps);
        profile.step_seconds = typical_times(times.micro_steps);
        profile.optimizer_seconds = comm::median(times.updates);
      }
      // Of micro-batches that are over at once nobody can say more: the plan follows what they turn out to take.
      worst = profile.step_seconds.back().seconds < k_quick_seconds ? 0.0 : profile.times_spread;
      control_.all_reduce(&worst, 1, comm::ScalarType::float64, comm::ReduceOp::max);
    }
  }

 private:
  // Since this probe, or since a plan that was followed or a cached answer that was tried: once it does, it goes on.
  bool recomputes_by_itself() const { return request_.recompute == Recompute::automatic && recomputes(runner_); }

  TrialResult run_trial(std::int64_t size) {
    control_.set_activity(fmt::format("a trial of {} samples in the probe", size));
    return sizes_.run_trial(size);
  }

  MemoryUse standing_memory(std::int64_t resident_bytes) const {
    const auto sum = [](const std::vector<NamedTensor>& tensors) {
      std::int64_t bytes = 0;
      for (const NamedTensor& tensor : tensors) bytes += static_cast<std::int64_t>(tensor.tensor.nbytes());
      return bytes;
    };
    MemoryUse memory;
    memory.parameters_bytes = sum(replica_.model->parameters());
    memory.buffers_bytes = sum(replica_.model->buffers());
    memory.gradients_bytes = static_cast<std::int64_t>(replica_.gradients.flat().nbytes());
    memory.optimizer_bytes = sum(replica_.optimizer.state());
    memory.communication_bytes =
        std::max<std::int64_t>(0, resident_bytes - memory.parameters_bytes - memory.buffers_bytes -
                                      memory.gradients_bytes - memory.optimizer_bytes);
    return memory;
  }

  void find_sizes(RankProfile& profile) {
    const std::int64_t cap = std::min(request_.max_size, request_.fixed_micro_batch.value_or(request_.probe.max_val));
    SearchOptions options = sizes_.search_options();
    options.mode = request_.probe.mode;
    options.max_size = std::max<std::int64_t>(1, cap);
    options.largest_is_wanted = request_.fixed_micro_batch.has_value();
    options.init_size = request_.probe.init_val;
    options.max_trials = request_.probe.max_trials;
    SearchResult found = search_largest_micro_batch(options, [this](std::int64_t size) { return run_trial(size); });
    const bool is_too_little =
        found.largest_micro_batch == 0 || (request_.fixed_micro_batch && found.largest_micro_batch < options.max_size);
    if (is_too_little && request_.recompute == Recompute::automatic && recompute(runner_))
      found = search_largest_micro_batch(options, [this](std::int64_t size) { return run_trial(size); });
    profile.recomputes = recomputes_by_itself();
    profile.trials = found.trials;
    profile.min_micro_batch = found.min_micro_batch;
    profile.largest_micro_batch = found.largest_micro_batch;
    profile.peak_bytes = found.peak_bytes;
    if (found.largest_micro_batch == 0)
      throw DoesNotFitError(
          too_large_text(profile, found.min_micro_batch, runner_.apart() == nullptr && !recomputes(runner_)));
    add_trials(profile.memory, profile.trials, profile.resident_bytes);
    find_room(profile);
    if (request_.fixed_micro_batch && found.largest_micro_batch < options.max_size) throw_fixed_does_not_fit(profile);
    // What was not limited by memory needs no head-room.
    const bool limited = found.largest_micro_batch < options.max_size;
    profile.max_micro_batch = found.largest_micro_batch;
    if (limited)
      profile.max_micro_batch = round_for_kernels(
          apply_margin(found.largest_micro_batch, found.min_micro_batch, request_.probe.margin), found.min_micro_batch);
  }

  // A trial of n samples is a share of n too, so its activations have what is kept of the share in them.
  void find_room(RankProfile& profile) const {
    MemoryUse& memory = profile.memory;
    if (runner_.apart() != nullptr)
      memory.kept_bytes_per_sample =
          std::min(runner_.apart()->kept_bytes_per_sample(), memory.activation_bytes_per_sample);
    memory.activation_bytes_per_sample -= memory.kept_bytes_per_sample;
    const std::int64_t left = profile.memory_limit_bytes - profile.resident_bytes - memory.workspace_bytes;
    profile.room_bytes =
        static_cast<std::int64_t>((1.0 - request_.probe.margin) * static_cast<double>(std::max<std::int64_t>(0, left)));
  }

  [[noreturn]] void throw_fixed_does_not_fit(const RankProfile& profile) const {
    throw DoesNotFitError(fmt::format(
        "batch.micro_batch_size = {} does not fit on rank {}'s {}: the largest that does is {}; write that or \"auto\"",
        *request_.fixed_micro_batch, profile.rank, profile.device, profile.largest_micro_batch));
  }

  // With real collectives: it also makes the communicator allocate its buffers. A micro-batch before each leaves caches
  // as a step does.
  void measure_reduction(RankProfile& profile) {
    replica_.device.empty_cache();  // the communicator's own memory comes from beside it
    std::vector<double> seconds;
    for (std::int64_t repeat = 0; repeat < std::max<std::int64_t>(3, request_.probe.steps_per_trial); ++repeat) {
      replica_.gradients.begin_step();
      agree(control_, [&] { sizes_.micro_step(profile.min_micro_batch); });
      const comm::Stopwatch watch;
      reducer_.finish();
      replica_.device.synchronize();
      seconds.push_back(watch.seconds());
    }
    // One that recomputes has none: its ranks may do so alone.
    if (runner_.apart() != nullptr && runner_.apart()->shares_statistics()) {
      profile.lock_step = runner_.apart()->in_lock_step();
      profile.exchange_seconds = runner_.apart()->exchange_seconds(control_);
    }
    profile.reduce_seconds = comm::median(seconds);
  }

  // As long as the slowest rank needs for its repeats, warmed up by one sweep.
  double agreed_window(RankProfile& profile, std::vector<std::int64_t>& sizes) {
    double seconds = 0.0;
    agree(control_, [&] {
      Times unused;
      const comm::Stopwatch watch;
      sweep(profile, sizes, unused);
      seconds = watch.seconds();
    });
    const auto repeats = static_cast<double>(request_.probe.steps_per_trial);
    const double sweeps = std::ceil(repeats / k_times_in_a_row);
    double window = std::clamp(seconds * sweeps, k_least_timing_seconds * repeats, k_most_timing_seconds);
    control_.all_reduce(&window, 1, comm::ScalarType::float64, comm::ReduceOp::max);
    return window;
  }

  // All ranks compute until the last is done, since a neighbour's load is part of the time that a step will take.
  Times time_once(RankProfile& profile, std::vector<std::int64_t>& sizes, double window) {
    Times times;
    control_.barrier();
    agree(control_, [&] {
      const comm::Stopwatch watch;
      do {
        sweep(profile, sizes, times);
      } while (watch.seconds() < window);
    });
    return times;
  }

  // All sizes once. Memory may be less than when they were found: a size that does not fit any more gives way to the
  // limit that follows.
  void sweep(RankProfile& profile, std::vector<std::int64_t>& sizes, Times& times) {
    for (std::size_t i = 0; i < sizes.size();) {
      control_.set_activity(fmt::format("measuring how long micro-batches of {} take", sizes[i]));
      if (fits(sizes[i], times)) {
        ++i;
      } else {
        recover_from_out_of_memory(replica_.device);
        if (i == 0) throw DoesNotFitError(no_room_text(sizes[i], replica_.device.name()));
        lower_limit(profile, sizes[i], k_lowered_limit);
        profile.max_micro_batch = std::max(profile.max_micro_batch, sizes[i - 1]);
        sizes.resize(i);
        if (profile.max_micro_batch > sizes.back()) sizes.push_back(profile.max_micro_batch);
      }
    }
  }

  // False where it ran out of memory. The exception is gone when this returns: it would keep tensors alive.
  bool fits(std::int64_t size, Times& times) {
    try {
      time(size, times);
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error)) throw;
      return false;
    }
    return true;
  }

  // As in a run: a step repeats its sizes, so the first of another size pays for memory and caches that the next ones
  // find; and it follows an update, not the idle end of a micro-batch on a device that plays a slow one. What a rank
  // does beside micro-batches is timed too.
  void time(std::int64_t size, Times& times) {
    sizes_.micro_step(size);
    for (int i = 0; i < k_times_in_a_row; ++i) {
      const comm::Stopwatch watch;
      sizes_.update();
      replica_.gradients.begin_step();
      replica_.device.synchronize();
      times.updates.push_back(watch.seconds());
      times.micro_steps[size].push_back(sizes_.micro_step(size));
    }
  }

  const ProbeRequest& request_;
  MicroBatchRunner& runner_;
  Replica& replica_;
  GradientReducer& reducer_;
  comm::Communicator& control_;
  SizeProbe sizes_;
};

// What every rank has found, on all of them.
ClusterProfile gather(const RankProfile& own, comm::Communicator& control) {
  ClusterProfile mine;
  mine.ranks.push_back(own);
  ClusterProfile all;
  for (const std::string& text : comm::all_gather_text(control, to_json(mine))) {
    all.ranks.push_back(parse_profile(text, "a rank's profile").ranks.at(0));
    all.ranks.back().rank = static_cast<int>(all.ranks.size()) - 1;
  }
  return all;
}

}  // namespace

ProbeAnswer probe_cluster(const ProbeRequest& request, MicroBatchRunner& runner, const Dataset& data,
                          GradientReducer& reducer, comm::Communicator& control) {
  Replica& replica = runner.replica();
  const auto before = kept_state(replica);
  RankProbe probe(request, runner, data, reducer, control);
  // Times depend on the neighbours: an answer is of all the ranks there were.
  std::string identity = request.identity;
  for (const std::string& rank : comm::all_gather_text(control, identity_of_rank(replica, data)))
    identity += "\n" + rank;
  ProbeCache cache(request.cache_folder, fmt::format("{}\nrank {}", identity, control.rank()));
  std::optional<RankProfile> known = request.probe.cache ? cache.load() : std::nullopt;
  std::int64_t all_known = known ? 1 : 0;
  control.all_reduce(&all_known, 1, comm::ScalarType::int64, comm::ReduceOp::min);
  const Confirmed confirmed = all_known == 1 ? probe.confirm(*known) : Confirmed::no;
  RankProfile mine = confirmed == Confirmed::no ? probe.measure() : *known;
  mine.local_statistics = request.local_statistics;
  before->restore(replica);
  replica.device.empty_cache();
  std::string not_kept;
  if (request.probe.cache && confirmed != Confirmed::as_it_was) not_kept = cache.store(mine);
  return {gather(mine, control), std::move(cache), std::move(not_kept)};
}

ClusterProfile time_cluster(const ClusterProfile& known, const ProbeRequest& request, MicroBatchRunner& runner,
                            const Dataset& data, GradientReducer& reducer, comm::Communicator& control) {
  Replica& replica = runner.replica();
  const auto before = kept_state(replica);
  RankProfile mine = known.ranks.at(static_cast<std::size_t>(control.rank()));
  RankProbe(request, runner, data, reducer, control).measure_times(mine);
  before->restore(replica);
  return gather(mine, control);
}

}  // namespace onebatch
