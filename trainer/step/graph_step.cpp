#include "trainer/step/graph_step.hpp"

#include "trainer/base/fault_point.hpp"
#include "trainer/io/named_tensors.hpp"
#include "trainer/models/compiled_program.hpp"
#include "trainer/models/sample_dropout.hpp"
#include "trainer/models/single_values.hpp"
#include "trainer/step/step_graphs.hpp"

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
// exchanges, and nobody whose round is to be recorded or compared.
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

Batch GraphStep::load(Replica& replica, const Dataset& data, Indices samples, std::int64_t step, LocalSums& sums) {
  fault_point("loader", step);
  const Span span(replica.timeline, "load", "data");
  auto [batch, weight] = replica.load(data, samples);
  sums.weight.add(weight, AnyOrder(replica.gradients.reproducible() != nullptr));
  return std::move(batch);
}

MicroBatch GraphStep::micro_batch_of(Replica& replica, const Batch& batch, const ForwardContext& context,
                                     bool is_native) {
  const c10::Device device = replica.device.device();
  const Graph& graph = is_native ? graphs_.begin()->second : graph_of(replica, batch, context.samples, context.step);
  MicroBatch micro_batch{context, &graph, {place_, device}, {place_, device}, {}, {}};
  if (is_native) {
    micro_batch.batch = batch;
    return micro_batch;
  }
  const std::vector<at::Tensor> tensors = batch.tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) micro_batch.kept.put(micro_batch.graph->tape.data[i], tensors[i]);
  micro_batch.kept.let_go();
  return micro_batch;
}

struct GraphStep::Underway {
  Replica& replica;
  const ReadAhead& data;
  std::int64_t step;
  std::shared_ptr<Rounds> rounds;
  bool is_native;
  LocalSums sums = {};
};

// A round as what may be recorded.
StepWork GraphStep::work_of(const Underway& of, std::vector<Batch> batches, const std::vector<Indices>& samples) {
  StepWork work;
  work.kind = WorkKind::round;
  work.batches = std::move(batches);
  work.run = [this, &replica = of.replica, rounds = of.rounds, samples, step = of.step](
                 std::vector<Batch> given, std::vector<at::Tensor>& keys, Meetings& meetings) {
    std::vector<MicroBatch> group;
    for (std::size_t i = 0; i < given.size(); ++i)
      group.push_back(micro_batch_of(replica, given[i], {replica.seed, step, samples[i], keys[i]}, false));
    given.clear();  // what is kept of them goes when nobody takes it any more
    rounds->run(group, meetings);
    for (std::size_t i = 0; i < group.size(); ++i) keys[i] = group[i].context.key;
  };
  work.key = [&replica = of.replica, samples, step = of.step](std::size_t i) {
    return noise_key({replica.seed, step, samples[i]});
  };
  return work;
}

// `by`: what records it; may be null. A rank has no samples in rounds that are others' alone.
void GraphStep::run_round(Underway& of, const std::vector<Indices>& samples, StepGraphs* by,
                          const std::vector<std::int64_t>& others, LiveMeetings& live) {
  std::vector<MicroBatch> group;
  std::vector<Batch> batches;
  for (const Indices part : samples) {
    Batch batch = load(of.replica, of.data, part, of.step, of.sums);
    of.rounds->leave_out(of.data.waits().back());
    if (by != nullptr)
      batches.push_back(std::move(batch));
    else
      group.push_back(micro_batch_of(of.replica, batch, {of.replica.seed, of.step, part}, of.is_native));
  }
  fault_point("model", of.step);
  of.replica.gradients.begin_backward();
  if (batches.empty()) {
    of.rounds->run(group, live);
  } else {
    StepWork work = work_of(of, std::move(batches), samples);
    work.others = others;
    by->run(std::move(work), live);
  }
  for (const Indices part : samples) of.rounds->count(part.size());
}

// What records rounds; null: they run kernel by kernel.
StepGraphs* GraphStep::step_graphs_for(const ApartOptions& options, bool is_native) const {
  if (options.graphs == nullptr || is_native) return nullptr;
  if (place_ == SavedPlace::device) return options.graphs;
  options.graphs->give_up("what exact BatchNorm keeps lies in the host's memory");
  return nullptr;
}

// Before the step's last round, in which alone parameters are told of. Others' sizes may be known from the step before.
bool GraphStep::asks_for_quiet(StepGraphs& graphs, const std::vector<Indices>& parts) const {
  if (parts.empty() || options_.statistics == BatchNormMode::local) return false;  // of the last nothing is recorded
  std::vector<std::int64_t> sizes;
  if (options_.statistics == BatchNormMode::exact) {
    for (const Indices part : parts) sizes.push_back(static_cast<std::int64_t>(part.size()));
    std::erase(sizes, 0);
    return graphs.ask_for_quiet({}, sizes);
  }
  if (parts.size() > others_.size()) return false;
  return graphs.ask_for_quiet(others_[parts.size() - 1], {static_cast<std::int64_t>(parts.back().size())});
}

LocalSums GraphStep::accumulate(Replica& replica, const ReadAhead& data, Indices samples,
                                const std::vector<MicroBatchRun>& micro_batches, std::int64_t step,
                                comm::Communicator& ranks, const ApartOptions& options) {
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
  StepGraphs* step_graphs = nullptr;
  bool may_tell = !is_native && options.told.is_final;
  std::shared_ptr<Rounds> rounds;
  try {
    step_graphs = step_graphs_for(options, is_native);
    if (graphs_.size() > k_most_graphs) {
      graphs_.clear();
      if (step_graphs != nullptr) step_graphs->release();  // which may read what the tapes held
    }
    if (may_tell && step_graphs != nullptr) may_tell = !asks_for_quiet(*step_graphs, parts);
    if (graphs_.empty()) {
      const auto found = std::ranges::find_if(parts, has_samples);
      Indices first = found == parts.end() ? Indices(some) : *found;
      // Of native code only its BatchNorms are asked for: of any size.
      if (is_native) first = first.first(std::min(first.size(), some.size()));
      watch(replica, data, first, step);
    }
    if (is_native && turns_ == nullptr) turns_ = std::make_shared<Turns>(replica.device.device());
    rounds =
        std::make_shared<Rounds>(replica, graphs_.begin()->second, computes, is_native ? turns_ : nullptr,
                                 step_graphs != nullptr ? step_graphs->begin_step() : StepNumbers::of(replica), ranks);
  } catch (...) {
    start.report_failure();
    throw;
  }
  const auto [most, all_end_with_samples] = look_at_all(*rounds, parts, together, may_tell, start);
  const std::size_t num_rounds = together ? 1 : most;
  // A rank without samples has nothing to tell: it would send its buckets behind exchanges for which others, who have
  // sent theirs, may wait with their whole device.
  const bool tells = may_tell && (ranks.size() == 1 || (options.told.beside_exchanges && all_end_with_samples));
  if (together && replica.gradients.reproducible() != nullptr) rounds->send_apart(most);
  if (options.which == Samples::of_a_step) rounds->refuse_single_values();
  for (std::size_t i = 0; i < num_rounds; ++i) rounds->exchange().expect(rounds->exchanges_of_a_round());
  const bool others_vary = ranks.size() > 1 && in_lock_step();
  others_.resize(others_vary ? std::max(others_.size(), num_rounds) : 0);
  Underway underway{replica, data, step, rounds, is_native};
  try {
    for (std::size_t round = 0; round < num_rounds; ++round) {
      const std::size_t begin = together ? 0 : std::min(round, parts.size());
      const std::size_t end = together ? parts.size() : std::min(round + 1, parts.size());
      std::vector<Indices> present(parts.begin() + static_cast<std::ptrdiff_t>(begin),
                                   parts.begin() + static_cast<std::ptrdiff_t>(end));
      std::erase_if(present, [](const Indices part) { return part.empty(); });  // others have some in this round
      const bool is_told = round + 1 == num_rounds && tells;
      LiveMeetings live(rounds->exchange(), replica.device.device(), is_told ? &options.told : nullptr);
      // A graph without an exchange would tell of all parameters at its end.
      const bool is_recorded = (shares_statistics() || !is_told) && !(others_vary && others_[round].empty());
      run_round(underway, present, is_recorded ? step_graphs : nullptr,
                others_vary ? others_[round] : std::vector<std::int64_t>(), live);
      if (others_vary) others_[round] = live.counts();
    }
    rounds->finish(underway.sums);
    // A replay keeps as much as what was recorded did.
    if (step_graphs == nullptr || rounds->kept_bytes_per_sample() > 0.0)
      kept_bytes_per_sample_ = rounds->kept_bytes_per_sample();
  } catch (const StepAbandoned&) {
    throw;
  } catch (...) {
    rounds->exchange().report_failure();
    throw;
  }
  return underway.sums;
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

}  // namespace onebatch
