#include "trainer/step/rounds.hpp"

#include "trainer/device/autocast.hpp"
#include "trainer/models/keyed_randomness.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace onebatch {
namespace {

at::Tensor live_argument(const Tape& tape, const TapeCall& call, std::size_t index) {
  const TapeArgument& argument = call.arguments[index];
  if (argument.kind == TapeArgument::Kind::constant) return {};
  const auto found = tape.live.find(argument.values.front());
  if (found != tape.live.end()) return found->second;
  throw CannotCapture("the model cannot be taken apart: a BatchNorm's weight, bias or running statistic is computed (" +
                      tape.values[static_cast<std::size_t>(argument.values.front())].made_by +
                      "), not a parameter or buffer");
}

// A BatchNorm's output is not kept: its input is, and gives it again.
void keep(MicroBatch& micro_batch, const Segment& segment, const Environment& made) {
  for (const Value value : segment.gives) {
    if (value != segment.output) micro_batch.kept.put(value, made.at(value));
  }
}

// While one is computed, what the next one takes comes from where it is kept, and what the one before has kept goes
// there.
template <typename Fetch, typename Compute>
void one_by_one(std::vector<MicroBatch>& micro_batches, const Fetch& fetch, const Compute& compute) {
  const std::size_t number = micro_batches.size();
  for (std::size_t k = 0; k < number; ++k) {
    if (k + 1 < number) fetch(micro_batches[k + 1]);
    compute(micro_batches[k], k);
    for (SavedValues* of : {&micro_batches[k].kept, &micro_batches[k].gradients}) of->forget_fetched();
    MicroBatch& before = micro_batches[(k + number - 1) % number];
    for (SavedValues* of : {&before.kept, &before.gradients}) of->let_go();
  }
}

std::string single_value_text(const std::string& batch_norm, BatchNormMode mode) {
  const bool sync = mode == BatchNormMode::sync;
  return fmt::format(
      "{} has one value per channel in {}, which would be its own mean: write {}, or batch.last_batch = \"drop\" where "
      "the epoch's last batch is one sample",
      batch_norm, sync ? "a micro-step (batch_norm.mode = \"sync\")" : "the whole batch",
      sync ? "a larger batch.micro_batch_size, fewer batch.gradient_accumulation_steps, batch_norm.mode = \"exact\""
           : "a larger batch.global_batch_size");
}

}  // namespace

Norm::Norm(const Tape& tape, const Segment& segment)
    : call(tape.calls[segment.batch_norm]),
      weight(live_argument(tape, call, 1)),
      bias(live_argument(tape, call, 2)),
      running_mean(live_argument(tape, call, 3)),
      running_var(live_argument(tape, call, 4)),
      channels(tape.values[static_cast<std::size_t>(segment.input)].channels),
      has_gradient(tape.values[static_cast<std::size_t>(segment.output)].requires_grad) {}

Rounds::Rounds(Replica& replica, const Graph& shape, Computes computes, std::shared_ptr<Turns> turns,
               StepNumbers numbers, comm::Communicator& ranks)
    : replica_(replica),
      shape_(shape),
      twice_(computes == Computes::twice),
      turns_(std::move(turns)),
      exchange_(
          ranks, [this] { time_.stop(); }, [this] { time_.start(); }),
      time_(replica.device),
      numbers_(std::move(numbers)) {
  for (const Segment& segment : shape.segments) {
    norms_.push_back(segment.begins_with_batch_norm ? std::make_unique<Norm>(shape.tape, segment) : nullptr);
  }
  time_.start();
}

void Rounds::run(std::vector<MicroBatch>& micro_batches, Meetings& meetings) {
  meetings_ = &meetings;
  // A backward of one micro-batch or segment does not know of the others.
  const FlatGradients::ListenerPause pause(replica_.gradients);
  if (turns_ != nullptr && !micro_batches.empty())
    run_native(micro_batches);
  else
    run_segments(micro_batches);
  commit();
  meetings_ = nullptr;
}

void Rounds::run_segments(std::vector<MicroBatch>& micro_batches) {
  settle_segments(micro_batches);
  only_readers_.clear();
  if (meetings_->tells()) settle_final(micro_batches);
  forward(micro_batches);
  meetings_->begin_last_backwards();
  for (std::size_t i = norms_.size(); i-- > 0;) {
    backward(micro_batches, i);
    tell_of(i);
  }
  for (MicroBatch& micro_batch : micro_batches) add_shared_gradients(micro_batch);
}

// Those cut at their BatchNorms are cut alike; one cut for its memory's sake is alone in its round, and has cuts of its
// own.
void Rounds::settle_segments(const std::vector<MicroBatch>& micro_batches) {
  if (micro_batches.empty()) return;
  const bool at_batch_norms = std::ranges::any_of(norms_, [](const auto& norm) { return norm != nullptr; });
  if (!at_batch_norms) norms_.resize(micro_batches.front().graph->segments.size());
  for (const MicroBatch& micro_batch : micro_batches) {
    if (micro_batch.graph->segments.size() != norms_.size())
      throw CannotCapture(
          "the model cannot be taken apart: micro-batches of unlike shapes take it through unlike BatchNorms");
  }
}

// Micro-batches of unlike shapes may read a parameter elsewhere.
void Rounds::settle_final(const std::vector<MicroBatch>& micro_batches) {
  std::vector<at::Tensor> parameters;
  for (const NamedTensor& parameter : replica_.gradients.parameters()) parameters.push_back(parameter.tensor);
  std::set<const Graph*> graphs;
  for (const MicroBatch& micro_batch : micro_batches) {
    if (!graphs.insert(micro_batch.graph).second) continue;
    auto only = only_readers(micro_batch.graph->tape, micro_batch.graph->segments, parameters);
    if (graphs.size() == 1) only_readers_ = only;
    for (std::size_t i = 0; i < only.size(); ++i) {
      if (only[i] != only_readers_[i]) only_readers_[i] = std::nullopt;
    }
  }
}

void Rounds::tell_of(std::size_t index) const {
  for (std::size_t parameter = 0; parameter < only_readers_.size(); ++parameter) {
    if (only_readers_[parameter] == index) meetings_->is_final(parameter);
  }
}

std::vector<std::size_t> Rounds::exchanges_of_a_round() const {
  std::vector<std::size_t> counts;
  for (const auto& norm : norms_) {
    if (norm) counts.push_back(slots_ * (1 + 2 * static_cast<std::size_t>(norm->channels)));
  }
  for (auto norm = norms_.rbegin(); norm != norms_.rend(); ++norm) {
    if (*norm && (*norm)->has_gradient) counts.push_back(slots_ * 2 * static_cast<std::size_t>((*norm)->channels));
  }
  return counts;
}

void Rounds::forward(std::vector<MicroBatch>& micro_batches) {
  const at::AutoGradMode mode(!twice_);
  for (std::size_t i = 0; i < norms_.size(); ++i) {
    if (norms_[i]) share_moments(micro_batches, i);
    if (twice_ && i + 1 == norms_.size()) break;  // its backward follows at once
    const auto fetch = [&](MicroBatch& next) { fetch_for_forward(next, i); };
    one_by_one(micro_batches, fetch, [&](MicroBatch& micro_batch, std::size_t) {
      if (twice_)
        run_once(micro_batch, i);
      else
        micro_batch.runs.push_back(run_with_gradients(micro_batch, i));
    });
  }
}

// In the order of the ranks. One that is alone asks nothing of its device.
std::vector<Moments> Rounds::of_all_ranks(const std::vector<Moments>& mine, const Norm& norm) {
  if (exchange_.is_alone()) return mine;
  const Met met = meetings_->meet(packed(mine, norm.channels));
  return unpacked_moments(met.numbers, met.there, norm.channels);
}

std::vector<OutputSums> Rounds::of_all_ranks(const std::vector<OutputSums>& mine, const Norm& norm) {
  if (exchange_.is_alone()) return mine;
  return unpacked_output_sums(meetings_->meet(packed(mine, norm.channels)).there, norm.channels);
}

OutputSums Rounds::total_of(const std::vector<OutputSums>& mine, const Norm& norm) {
  OutputSums total;
  for (const OutputSums& sums : of_all_ranks(mine, norm)) total.add(sums);
  return total;
}

void Rounds::share_moments(std::vector<MicroBatch>& micro_batches, std::size_t index) {
  std::vector<Moments> mine(slots_);
  const auto next_input = [&](MicroBatch& next) { fetch(next, next.segment(index).input); };
  one_by_one(micro_batches, next_input, [&](MicroBatch& micro_batch, std::size_t k) {
    mine[std::min(k, slots_ - 1)].add(moments_of(norm_input(micro_batch, index)));
  });
  if (!micro_batches.empty()) fetch_for_forward(micro_batches.front(), index);
  settle_moments(mine, index);
}

void Rounds::settle_moments(const std::vector<Moments>& mine, std::size_t index) {
  Norm& norm = *norms_[index];
  norm.moments = Moments();
  for (const Moments& moments : of_all_ranks(mine, norm)) norm.moments.add(moments);
  if (norm.moments.count == 0.0) throw std::logic_error("a BatchNorm of no samples on any rank");
  if (norm.moments.count == 1.0 && refuses_single_values_)
    throw UserError(
        single_value_text(shape_.tape.values[static_cast<std::size_t>(shape_.segments[index].output)].made_by,
                          twice_ ? BatchNormMode::exact : BatchNormMode::sync));
  const auto like = norm.weight.defined() ? norm.weight.options().requires_grad(false)
                                          : at::TensorOptions().dtype(replica_.type).device(replica_.device.device());
  norm.by = make_normaliser(norm.moments, eps_of(norm.call), like);
}

void Rounds::run_once(MicroBatch& micro_batch, std::size_t index) {
  const Segment& segment = micro_batch.segment(index);
  const RandomnessScope scope(micro_batch.context);
  const AutocastScope autocast(replica_.autocast, replica_.device.device());
  Environment given;
  for (const Value value : segment.takes) given[value] = taken_by(segment, micro_batch, value);
  // Its BatchNorm's output was made for this segment alone, to write to if it likes.
  keep(micro_batch, segment, run_segment(micro_batch.graph->tape, segment, Playing::first, given, {segment.output}));
}

Run Rounds::run_with_gradients(MicroBatch& micro_batch, std::size_t index) {
  const at::AutoGradMode with_gradients(true);
  const Segment& segment = micro_batch.segment(index);
  const RandomnessScope scope(micro_batch.context);
  const AutocastScope autocast(replica_.autocast, replica_.device.device());
  Run run;
  Environment given;
  const auto give = [&](Value value, const at::Tensor& tensor, bool has_gradient) {
    given[value] = has_gradient ? run.inputs.try_emplace(value, tensor).first->second.tensor() : tensor.detach();
  };
  for (const Value value : segment.takes)
    give(value, taken_by(segment, micro_batch, value), micro_batch.has_gradient(value));
  for (const Value value : segment.shared) give(value, micro_batch.graph->tape.live.at(value), true);
  // Later segments alone may read it.
  if (norms_[index] && norms_[index]->has_gradient && !run.inputs.contains(segment.output))
    run.inputs.try_emplace(segment.output, normalised_input(micro_batch, index));
  const bool again = twice_ && index + 1 < norms_.size();  // the last segment runs once
  run.made = run_segment(micro_batch.graph->tape, segment, again ? Playing::again : Playing::first, given);
  if (!twice_) keep(micro_batch, segment, run.made);
  return run;
}

void Rounds::backward(std::vector<MicroBatch>& micro_batches, std::size_t index) {
  std::vector<OutputSums> sums(slots_);
  const auto fetch = [&](MicroBatch& next) { fetch_for_backward(next, index); };
  one_by_one(micro_batches, fetch, [&](MicroBatch& micro_batch, std::size_t k) {
    Run run = twice_ ? run_with_gradients(micro_batch, index) : std::move(micro_batch.runs[index]);
    backward_of(micro_batch, index, run);
    if (!norms_[index] || !norms_[index]->has_gradient) return;
    const SegmentInput& output = run.inputs.at(micro_batch.segment(index).output);
    const at::Tensor gradient = output.gradient().defined() ? output.gradient() : at::zeros_like(output.tensor());
    sums[std::min(k, slots_ - 1)].add(output_sums(gradient, norm_input(micro_batch, index), norms_[index]->by));
    micro_batch.gradients.put(micro_batch.segment(index).output, gradient);
  });
  count_kept(micro_batches);
  if (norms_[index] && norms_[index]->has_gradient) backward_of_norm(micro_batches, index, sums);
  for (MicroBatch& micro_batch : micro_batches) {
    for (const Value value : micro_batch.segment(index).releases) micro_batch.kept.erase(value);
  }
}

void Rounds::backward_of(MicroBatch& micro_batch, std::size_t index, Run& run) {
  const Segment& segment = micro_batch.segment(index);
  const Value loss = micro_batch.graph->tape.loss;
  if (const auto made = run.made.find(loss); made != run.made.end()) {
    const at::Tensor told = made->second.detach();
    const bool has_weight = replica_.loss.is_the_models();
    numbers_.add(has_weight ? told[0] : told, has_weight ? told[1] : at::Tensor(), replica_);
    at::Tensor gradient = numbers_.factor.to(told.scalar_type()).expand_as(told).clone();
    if (has_weight) gradient[1].zero_();
    micro_batch.gradients.put(loss, gradient);
  }
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> gradients;
  for (const Value value : segment.gives) {
    if (!micro_batch.gradients.has(value) || run.inputs.contains(value)) continue;
    const at::Tensor gradient = micro_batch.gradients.take(value);
    const at::Tensor& output = run.made.at(value);
    if (!output.requires_grad()) continue;
    outputs.push_back(output);
    gradients.push_back(gradient);
  }
  // What later segments have given stands first in the sums, as in a whole backward: else the bits are others.
  for (const auto& [value, input] : run.inputs) {
    if (!micro_batch.gradients.has(value)) continue;
    outputs.push_back(input.tensor());
    gradients.push_back(micro_batch.gradients.take(value));
  }
  if (!outputs.empty()) torch::autograd::backward(outputs, gradients);
  for (const auto& [value, input] : run.inputs) {
    if (value != segment.output && input.gradient().defined()) micro_batch.gradients.put(value, input.gradient());
  }
}

void Rounds::backward_of_norm(std::vector<MicroBatch>& micro_batches, std::size_t index,
                              const std::vector<OutputSums>& mine) {
  const at::NoGradGuard no_grad;
  const Norm& norm = *norms_[index];
  // Each rank adds its own part: the ranks' gradients are summed at the step's end.
  for (const OutputSums& own : mine) {
    if (!own.gradient.defined()) continue;
    if (norm.weight.defined()) replica_.gradients.add(norm.weight, own.gradient_times_normalised);
    if (norm.bias.defined()) replica_.gradients.add(norm.bias, own.gradient);
  }
  if (!micro_batches.empty()) fetch_for_norm(micro_batches.front(), index);
  const OutputSums total = total_of(mine, norm);
  const auto fetch = [&](MicroBatch& next) { fetch_for_norm(next, index); };
  one_by_one(micro_batches, fetch, [&](MicroBatch& micro_batch, std::size_t) {
    const Segment& segment = micro_batch.segment(index);
    const at::Tensor gradient = micro_batch.gradients.take(segment.output);
    if (micro_batch.has_gradient(segment.input))
      micro_batch.gradients.add(segment.input,
                                input_gradient(gradient, norm_input(micro_batch, index), norm.weight, norm.by, total));
  });
}

void Rounds::commit() {
  const at::NoGradGuard no_grad;
  Environment versions;
  const auto get = [&](Value value) {
    const auto found = versions.find(value);
    return found != versions.end() ? found->second : shape_.tape.live.at(value);
  };
  for (const auto& norm : norms_) {
    if (!norm) continue;
    const Value counter = norm->call.momentum_buffer;
    const double momentum =
        counter == k_no_value ? momentum_of(norm->call) : momentum_after(norm->call, shape_.tape.live.at(counter));
    update_running(norm->running_mean, norm->running_var, norm->moments, momentum);
  }
  for (const TapeCall& call : shape_.tape.buffer_calls) play(call, Playing::first, get, get, versions);
}

}  // namespace onebatch
