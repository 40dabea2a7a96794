#include "trainer/step/accumulation.hpp"

#include "comm/local_communicator.hpp"
#include "trainer/base/error.hpp"
#include "trainer/base/fault_point.hpp"
#include "trainer/base/transfer.hpp"
#include "trainer/data/padding.hpp"
#include "trainer/device/failed_backward.hpp"
#include "trainer/device/no_room.hpp"
#include "trainer/models/compiled_program.hpp"
#include "trainer/models/sample_dropout.hpp"
#include "trainer/replica/train_micro_batch.hpp"
#include "trainer/step/graph_step.hpp"
#include "trainer/step/step_graphs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

namespace onebatch {
namespace {

using Clock = std::chrono::steady_clock;
using Indices = std::span<const std::int64_t>;
using Wanted = std::optional<std::vector<std::size_t>>;  // parameters to compute the gradient of; none: all

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Whether there is more memory without them.
bool give_up(StepGraphs* graphs) {
  if (graphs == nullptr || !graphs->is_holding()) return false;
  graphs->give_up("a micro-batch ran out of memory beside them");
  return true;
}

class Accumulator {
 public:
  Accumulator(Replica& replica, const Dataset& data, std::int64_t step, const AccumulationOptions& options)
      : replica_(replica),
        data_(data),
        step_(step),
        options_(options),
        graphs_(options.graphs),
        numbers_(graphs_ != nullptr ? graphs_->begin_step() : StepNumbers::of(replica)) {}

  void micro_batch(Indices samples, bool last) {
    if (last && options_.told.begin) options_.told.begin();
    // Who listens is told of each parameter by its backward.
    replays_ = graphs_ != nullptr && !(last && replica_.gradients.has_listener());
    run(samples, std::nullopt);
  }

  LocalSums finish() {
    sums_.unread.emplace();
    sums_.unread->numbers = numbers_.unread(replica_);
    return sums_;
  }

 private:
  void run(Indices samples, const Wanted& wanted) {
    replica_.gradients.begin_backward();
    if (fits(samples, wanted)) return;
    const auto size = static_cast<std::int64_t>(samples.size());
    if (give_up(graphs_)) {
      if (can_go_on()) return run(samples, replica_.gradients.not_reached(wanted));
      throw MicroBatchDoesNotFit(MicroBatchDoesNotFit::k_beside_graphs);
    }
    if (halves_would_differ() || (size > 1 && !can_go_on())) throw MicroBatchDoesNotFit(size);
    if (size == 1) throw DoesNotFitError(no_room_text(1, replica_.device.name()));
    ++sums_.out_of_memory_events;
    sums_.failed_size = sums_.failed_size == 0 ? size : std::min(sums_.failed_size, size);
    const std::vector<std::size_t> missing = replica_.gradients.not_reached(wanted);
    const std::size_t half = samples.size() / 2;
    {
      const FlatGradients::ListenerPause pause(replica_.gradients);
      run(samples.first(half), missing);
    }
    run(samples.subspan(half), missing);
  }

  // With what a micro-batch that ran out of memory has left: not where statistics have moved on, or where native code
  // has added some of its gradient.
  [[nodiscard]] bool can_go_on() const {
    return !replica_.has_batch_statistics && compiled_of(*replica_.model) == nullptr;
  }

  // By other statistics, or other bits.
  [[nodiscard]] bool halves_would_differ() const {
    return replica_.has_batch_statistics || replica_.gradients.reproducible() != nullptr;
  }

  // False where it ran out of memory, from which the device has recovered by then.
  bool fits(Indices samples, const Wanted& wanted) {
    const auto work = [&] { attempt(samples, wanted); };
    if (options_.split_on_out_of_memory) return onebatch::fits(replica_.device, work);
    work();
    return true;
  }

  void attempt(Indices samples, const Wanted& wanted) {
    const auto [batch, weight] = load(samples);
    const Span span(replica_.timeline, "micro-batch", "compute");
    fault_point("model", step_);
    if (at::Tensor key; !replays_ || wanted)
      micro_step(batch, samples, key, wanted);
    else
      replay(batch, samples);
    sums_.weight.add(weight, AnyOrder(replica_.gradients.reproducible() != nullptr));
  }

  void replay(const Batch& batch, Indices samples) {
    NoMeetings nobody;
    const auto run = [this, samples](const std::vector<Batch>& given, std::vector<at::Tensor>& keys, Meetings&) {
      micro_step(given.front(), samples, keys.front(), std::nullopt);
    };
    graphs_->run({WorkKind::micro_step,
                  {},
                  {batch},
                  run,
                  [this, samples](std::size_t) { return noise_key(context_of(samples)); }},
                 nobody);
  }

  // All of it is the device's: it may be recorded.
  void micro_step(const Batch& batch, Indices samples, at::Tensor& key, const Wanted& wanted) {
    const ForwardContext context = context_of(samples, key);
    const Replica::Forward made = train_micro_batch(replica_, batch, context, {numbers_.factor, wanted});
    key = context.key;
    numbers_.add(made.loss, made.weight, replica_);
  }

  [[nodiscard]] ForwardContext context_of(Indices samples, const at::Tensor& key = {}) const {
    return {replica_.seed, step_, samples, key};
  }

  Replica::Loaded load(Indices samples) const {
    const Span span(replica_.timeline, "load", "data");
    fault_point("loader", step_);
    return replica_.load(data_, samples);
  }

  Replica& replica_;
  const Dataset& data_;
  std::int64_t step_;
  const AccumulationOptions& options_;
  StepGraphs* graphs_;
  StepNumbers numbers_;  // summed where they are made and read once: to read each would hold the next one up
  bool replays_ = false;
  LocalSums sums_;
};

LocalSums run_in_turn(Replica& replica, const ReadAhead& data, Indices samples,
                      const std::vector<MicroBatchRun>& micro_batches, std::int64_t step,
                      const AccumulationOptions& options) {
  const auto start = Clock::now();
  const auto begin = replica.device.mark();
  Accumulator accumulator(replica, data, step, options);
  for (const Indices part : micro_batches_of(samples, micro_batches))
    accumulator.micro_batch(part, part.data() + part.size() == samples.data() + samples.size());
  LocalSums sums = accumulator.finish();
  {
    const Span span(replica.timeline, "pace", "compute");
    replica.device.pace(seconds_since(start) - data.waited_seconds(), micro_batches);
  }
  sums.unread->begin = begin;
  sums.unread->end = replica.device.mark();
  sums.unread->left_out = data.waits();
  return sums;
}

// Nothing where it ran out of memory. The exception is gone when this returns: it would keep tensors alive.
std::optional<LocalSums> run_apart(const MicroBatchRunner& runner, const ReadAhead& data, Indices samples,
                                   const std::vector<MicroBatchRun>& micro_batches, std::int64_t step,
                                   const AccumulationOptions& options) {
  comm::LocalCommunicator alone;
  try {
    const bool shares = options.ranks != nullptr && runner.apart()->shares_statistics();
    return runner.apart()->accumulate(
        runner.replica(), data, samples, micro_batches, step, shares ? *options.ranks : alone,
        {options.ranks != nullptr ? Samples::of_a_step : Samples::of_a_trial, options.told, options.graphs});
  } catch (const std::exception& error) {
    if (!options.split_on_out_of_memory || !is_out_of_memory(error)) throw;
  }
  return std::nullopt;
}

std::int64_t largest_of(const std::vector<MicroBatchRun>& micro_batches) {
  std::int64_t largest = 0;
  for (const MicroBatchRun& run : micro_batches) largest = std::max(largest, run.size);
  return largest;
}

}  // namespace

MicroBatchDoesNotFit::MicroBatchDoesNotFit(std::int64_t size)
    : std::runtime_error(fmt::format("a micro-batch of {} ran out of memory", size)), size_(size) {}

void settle(LocalSums& sums, std::span<const double> read) {
  const UnreadSums unread = *std::exchange(sums.unread, std::nullopt);
  sums.loss = read[0];
  if (read.size() > 1) sums.weight = {read[1], read[2]};
  sums.compute_seconds += unread.end->seconds_since(*unread.begin);
  for (const DataWait& wait : unread.left_out) sums.compute_seconds -= wait.end->seconds_since(*wait.begin);
}

std::vector<Indices> micro_batches_of(Indices samples, const std::vector<MicroBatchRun>& runs) {
  std::vector<Indices> parts;
  std::size_t begin = 0;
  for (const auto& [size, count] : runs) {
    for (std::int64_t i = 0; i < count; ++i) {
      parts.push_back(samples.subspan(begin, static_cast<std::size_t>(size)));
      begin += parts.back().size();
    }
  }
  if (begin != samples.size()) throw std::logic_error("the plan's micro-batches do not add up to the rank's share");
  return parts;
}

LocalSums accumulate_gradient(const MicroBatchRunner& runner, const Dataset& all, std::span<const std::int64_t> samples,
                              const std::vector<MicroBatchRun>& micro_batches, std::int64_t step,
                              const AccumulationOptions& options) {
  Replica& replica = runner.replica();
  const std::int64_t length = replica.padding == Padding::micro_batch
                                  ? k_longest_in_it
                                  : longest_of(all, options.global_batch.empty() ? samples : options.global_batch);
  const ReadAhead data(all, replica.device, replica.timeline, options.ahead, length);
  if (replica.shares_statistics != (runner.apart() != nullptr && runner.apart()->shares_statistics()))
    throw std::logic_error("what runs the micro-batches has another mode of BatchNorm than the replica");
  std::optional<LocalSums> sums;
  if (runner.apart() == nullptr) {
    sums = run_in_turn(replica, data, samples, micro_batches, step, options);
  } else {
    sums = run_apart(runner, data, samples, micro_batches, step, options);
    if (!sums) {
      recover_from_out_of_memory(replica.device);
      throw MicroBatchDoesNotFit(give_up(options.graphs) ? MicroBatchDoesNotFit::k_beside_graphs
                                                         : largest_of(micro_batches));
    }
  }
  sums->data_wait_seconds = data.waited_seconds();
  if (sums->unread && options.reads == Reads::now) settle(*sums, read_numbers(sums->unread->numbers));
  return *std::move(sums);
}

}  // namespace onebatch
