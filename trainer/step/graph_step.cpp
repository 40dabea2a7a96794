#include "trainer/step/graph_step.hpp"

#include "trainer/base/fault_point.hpp"
#include "trainer/io/named_tensors.hpp"
#include "trainer/models/compiled_program.hpp"
#include "trainer/models/single_values.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

namespace onebatch {
namespace {

using Clock = std::chrono::steady_clock;
using Indices = std::span<const std::int64_t>;

constexpr std::size_t k_most_graphs = 64;  // of other sizes and lengths

constexpr std::size_t k_told_at_start = 3;  // numbers, by each rank

// Each of native code's micro-batches that are under way has threads of its own, and on a GPU workspaces.
constexpr std::size_t k_most_threads = 512;
constexpr std::size_t k_most_on_a_gpu = 32;

// Why micro-batches that are so many together do not run by native code; empty: nothing is against it.
std::string too_many_together(const Replica& replica, std::size_t number) {
  const auto text = [&](std::size_t most) {
    return fmt::format("{} micro-batches would be under way together, and at most {} may be: larger ones are fewer",
                       number, most);
  };
  if (replica.device.device().is_cuda()) return number > k_most_on_a_gpu ? text(k_most_on_a_gpu) : "";
  const auto threads = static_cast<std::size_t>(at::get_num_threads());
  return number * threads > k_most_threads ? text(std::max<std::size_t>(1, k_most_threads / threads)) : "";
}

bool has_samples(const Indices part) {
  return !part.empty();
}

struct OfAllRanks {
  std::size_t most_micro_batches = 0;
  bool all_end_with_samples = true;  // each has some in the last round
};

// Collective. `may_tell`: whether this rank could, as no native code does, which sends its gradients behind all
// exchanges.
OfAllRanks look_at_all(const Rounds& rounds, const std::vector<Indices>& parts, bool together, bool may_tell,
                       StepExchange& start) {
  const std::vector<std::size_t> schedule = rounds.exchanges_of_a_round();
  const auto total = static_cast<double>(std::accumulate(schedule.begin(), schedule.end(), std::size_t{0}));
  const bool ends = !may_tell  ? false
                    : together ? std::ranges::any_of(parts, has_samples)
                               : !parts.empty() && has_samples(parts.back());
  const std::vector<double> numbers = start.gather({static_cast<double>(parts.size()), total, ends ? 1.0 : 0.0});
  OfAllRanks all;
  for (std::size_t i = 0; i < numbers.size(); i += k_told_at_start) {
    all.most_micro_batches = std::max(all.most_micro_batches, static_cast<std::size_t>(numbers[i]));
    if (numbers[i + 1] != total) throw std::logic_error("the ranks' models have other BatchNorms");
  }
  for (std::size_t i = 0; i < numbers.size(); i += k_told_at_start) {
    const bool in_last_round = together || static_cast<std::size_t>(numbers[i]) == all.most_micro_batches;
    all.all_end_with_samples = all.all_end_with_samples && in_last_round && numbers[i + 2] > 0.0;
  }
  return all;
}

// A forward may change its inputs, and what is watched is no step of theirs.
Batch copy_of(const Batch& batch) {
  Batch copy = batch;
  for (at::Tensor& input : copy.inputs) input = input.clone();
  for (at::Tensor* tensor : {&copy.targets, &copy.weights}) {
    if (tensor->defined()) *tensor = tensor->clone();
  }
  return copy;
}

}  // namespace

const Graph& GraphStep::graph_of(Replica& replica, const Batch& batch, Indices samples, std::int64_t step) {
  std::vector<std::vector<std::int64_t>> shapes;
  for (const at::Tensor& tensor : batch.tensors()) shapes.push_back(tensor.sizes().vec());
  if (const auto found = graphs_.find(shapes); found != graphs_.end()) return found->second;
  CaptureRequest request;
  request.known = replica.model->parameters();
  request.literals = replica.model->literals();
  for (const auto& group : {replica.model->buffers(), replica.loss.constants()})
    request.known.insert(request.known.end(), group.begin(), group.end());
  request.graph = options_.graph;
  const Batch watched = copy_of(batch);
  request.data = watched.tensors();
  const SavedTensors before(replica.model->buffers());
  // One value per channel has others beside it, in other micro-batches.
  std::optional<SingleValues> single_values;
  if (shares_statistics()) single_values.emplace();
  Graph graph;
  graph.tape = capture(request, [&] {
    const Replica::Forward made = replica.forward(watched, {replica.seed, step, samples});
    if (!made.weight.defined()) return made.loss;
    // A weight that is made of a number lies on the host.
    const bool there = made.weight.device() == made.loss.device();
    return at::stack({made.loss, there ? made.weight : made.weight.to(made.loss.device())});
  });
  before.restore();
  graph.segments = options_.statistics == BatchNormMode::local ? cut_for_memory(graph.tape, options_.segments)
                                                               : cut_at_batch_norms(graph.tape);
  return graphs_.emplace(std::move(shapes), std::move(graph)).first->second;
}

void GraphStep::watch(Replica& replica, const Dataset& data, Indices samples, std::int64_t step) {
  graph_of(replica, replica.load(data, samples).batch, samples, step);
}

MicroBatch GraphStep::load(Replica& replica, const Dataset& data, Indices samples, std::int64_t step, bool is_native,
                           LocalSums& sums) {
  fault_point("loader", step);
  const Span span(replica.timeline, "load", "data");
  const auto [batch, weight] = replica.load(data, samples);
  sums.weight.add(weight, AnyOrder(replica.gradients.reproducible() != nullptr));
  const c10::Device device = replica.device.device();
  const Graph& graph = is_native ? graphs_.begin()->second : graph_of(replica, batch, samples, step);
  MicroBatch micro_batch{{replica.seed, step, samples}, &graph, {place_, device}, {place_, device}, {}, {}};
  if (is_native) {
    micro_batch.batch = batch;
    return micro_batch;
  }
  const std::vector<at::Tensor> tensors = batch.tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) micro_batch.kept.put(micro_batch.graph->tape.data[i], tensors[i]);
  micro_batch.kept.let_go();
  return micro_batch;
}

LocalSums GraphStep::accumulate(Replica& replica, const ReadAhead& data, Indices samples,
                                const std::vector<MicroBatchRun>& micro_batches, std::int64_t step,
                                comm::Communicator& ranks, Samples which, const FinalParameters& told) {
  std::vector<Indices> parts = micro_batches_of(samples, micro_batches);
  if (samples.empty() && ranks.size() == 1) return {};
  if (ranks.size() == 1)
    std::erase_if(parts, [](const Indices part) { return part.empty(); });  // nobody else has samples in those rounds
  const Computes computes = options_.statistics == BatchNormMode::sync ? Computes::once : Computes::twice;
  const bool together = options_.statistics == BatchNormMode::exact;
  const auto number = static_cast<std::size_t>(std::ranges::count_if(parts, has_samples));
  const bool runs_native = runs_native_code(*replica.model);
  gave_way_ = runs_native && together ? too_many_together(replica, number) : "";
  const bool is_native = runs_native && gave_way_.empty();
  // A rank without samples takes part as well, and has to know in what.
  const std::vector<std::int64_t> some = {0, data.size() > 1 ? 1 : 0};
  StepExchange start(
      ranks, [] {}, [] {});
  start.expect({k_told_at_start});
  std::optional<Rounds> rounds;
  try {
    if (graphs_.size() > k_most_graphs) graphs_.clear();
    if (graphs_.empty()) {
      const auto found = std::ranges::find_if(parts, has_samples);
      Indices first = found == parts.end() ? Indices(some) : *found;
      // Of native code only its BatchNorms are asked for: of any size.
      if (is_native) first = first.first(std::min(first.size(), some.size()));
      watch(replica, data, first, step);
    }
    rounds.emplace(replica, graphs_.begin()->second, computes, is_native, ranks);
  } catch (...) {
    start.report_failure();
    throw;
  }
  const auto [most, all_end_with_samples] = look_at_all(*rounds, parts, together, !is_native, start);
  const std::size_t num_rounds = together ? 1 : most;
  // A rank without samples has nothing to tell: it would send its buckets behind exchanges for which others, who have
  // sent theirs, may wait with their whole device.
  const bool tells = ranks.size() == 1 || (told.beside_exchanges && all_end_with_samples);
  if (together && replica.gradients.reproducible() != nullptr) rounds->send_apart(most);
  if (which == Samples::of_a_step) rounds->refuse_single_values();
  for (std::size_t i = 0; i < num_rounds; ++i) rounds->exchange().expect(rounds->exchanges_of_a_round());
  LocalSums sums;
  try {
    for (std::size_t round = 0; round < num_rounds; ++round) {
      const std::size_t begin = together ? 0 : std::min(round, parts.size());
      const std::size_t end = together ? parts.size() : std::min(round + 1, parts.size());
      std::vector<MicroBatch> group;
      for (std::size_t k = begin; k < end; ++k) {
        if (parts[k].empty()) continue;  // in lock-step: others have some in this round
        group.push_back(load(replica, data, parts[k], step, is_native, sums));
        rounds->leave_out(data.waits().back());
      }
      fault_point("model", step);
      if (round + 1 == num_rounds && tells) rounds->tell(told);
      rounds->run(group);
    }
    rounds->finish(sums);
    kept_bytes_per_sample_ = rounds->kept_bytes_per_sample();
  } catch (const StepAbandoned&) {
    throw;
  } catch (...) {
    rounds->exchange().report_failure();
    throw;
  }
  return sums;
}

double GraphStep::exchange_seconds(comm::Communicator& ranks) const {
  constexpr int k_tries = 5;
  if (ranks.size() == 1) return 0.0;
  std::size_t channels = 0;
  std::size_t exchanges = 0;
  for (const Segment& segment : graphs_.begin()->second.segments) {
    if (!segment.begins_with_batch_norm) continue;
    channels =
        std::max(channels, static_cast<std::size_t>(
                               graphs_.begin()->second.tape.values[static_cast<std::size_t>(segment.input)].channels));
    exchanges += 2;
  }
  double shortest = HUGE_VAL;
  std::vector<double> mine(2 * channels + 2, 0.0);
  std::vector<double> all(mine.size() * static_cast<std::size_t>(ranks.size()));
  for (int i = 0; i < k_tries; ++i) {
    ranks.barrier();
    const auto start = Clock::now();
    for (std::size_t exchange = 0; exchange < exchanges; ++exchange)
      ranks.all_gather(mine.data(), all.data(), mine.size() * sizeof(double));
    shortest = std::min(shortest, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return shortest;
}

std::unique_ptr<GraphStep> run_by_graph(const Configuration& configuration, const Replica& replica,
                                        AutogradGraph graph) {
  const BatchNormMode mode = replica.has_batch_statistics ? configuration.batch_norm.mode : BatchNormMode::local;
  return std::make_unique<GraphStep>(GraphOptions{mode, configuration.memory.segments, graph});
}

MicroBatchRunner choose_runner(const Configuration& configuration, Replica& replica) {
  if (!replica.shares_statistics && configuration.memory.recompute != Recompute::on) return MicroBatchRunner(replica);
  return MicroBatchRunner(replica, run_by_graph(configuration, replica, AutogradGraph::left_out));
}

bool recompute(MicroBatchRunner& runner) {
  if (const MayBeCompiled* owner = compiled_of(*runner.replica().model)) {
    if (!owner->compiled->may_recompute() || owner->compiled->recomputes()) return false;
    owner->compiled->recompute(true);
    return true;
  }
  if (runner.apart() != nullptr) return false;
  runner.take_apart(std::make_unique<GraphStep>(GraphOptions{}));
  return true;
}

void keep_activations(MicroBatchRunner& runner) {
  if (const MayBeCompiled* owner = compiled_of(*runner.replica().model)) owner->compiled->recompute(false);
}

bool recomputes(const MicroBatchRunner& runner) {
  if (const MayBeCompiled* owner = compiled_of(*runner.replica().model)) return owner->compiled->recomputes();
  return runner.apart() != nullptr && !runner.apart()->shares_statistics();
}

}  // namespace onebatch
