// What rounds take of what their micro-batches have kept, and how it comes.
#include "trainer/step/rounds.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace onebatch {

at::Tensor Rounds::normalised_input(MicroBatch& micro_batch, std::size_t index) const {
  const Norm& norm = *norms_[index];
  const at::NoGradGuard no_grad;
  return normalised(norm_input(micro_batch, index), norm.weight, norm.bias, norm.by);
}

std::optional<std::size_t> Rounds::norm_that_makes(const MicroBatch& micro_batch, Value value) const {
  for (std::size_t i = 0; i < norms_.size(); ++i) {
    if (norms_[i] && micro_batch.segment(i).output == value) return i;
  }
  return std::nullopt;
}

at::Tensor Rounds::taken(MicroBatch& micro_batch, Value value) const {
  const auto norm = norm_that_makes(micro_batch, value);
  return norm ? normalised_input(micro_batch, *norm) : micro_batch.kept.get(value);
}

at::Tensor Rounds::taken_by(const Segment& segment, MicroBatch& micro_batch, Value value) const {
  const at::Tensor tensor = taken(micro_batch, value);
  return std::ranges::find(segment.changes, value) == segment.changes.end() ? tensor : tensor.clone();
}

at::Tensor Rounds::norm_input(MicroBatch& micro_batch, std::size_t index) const {
  return taken(micro_batch, micro_batch.segment(index).input);
}

void Rounds::fetch(MicroBatch& micro_batch, Value value) const {
  if (const auto norm = norm_that_makes(micro_batch, value))
    return fetch(micro_batch, micro_batch.segment(*norm).input);
  micro_batch.kept.fetch(value);
}

void Rounds::fetch_for_forward(MicroBatch& micro_batch, std::size_t index) const {
  for (const Value value : micro_batch.segment(index).takes) fetch(micro_batch, value);
}

void Rounds::fetch_for_backward(MicroBatch& micro_batch, std::size_t index) const {
  const Segment& segment = micro_batch.segment(index);
  if (twice_) fetch_for_forward(micro_batch, index);
  if (norms_[index] && norms_[index]->has_gradient) fetch(micro_batch, segment.input);
  for (const auto* values : {&segment.gives, &segment.takes, &segment.shared}) {
    for (const Value value : *values) {
      // Its BatchNorm's output is among the first, where later segments read it.
      if (values != &segment.takes || value != segment.output) micro_batch.gradients.fetch(value);
    }
  }
}

void Rounds::fetch_for_norm(MicroBatch& micro_batch, std::size_t index) const {
  const Segment& segment = micro_batch.segment(index);
  micro_batch.gradients.fetch(segment.output);
  if (!micro_batch.has_gradient(segment.input)) return;
  fetch(micro_batch, segment.input);
  micro_batch.gradients.fetch(segment.input);
}

void Rounds::count_kept(const std::vector<MicroBatch>& micro_batches) {
  if (micro_batches.empty()) return;
  const MicroBatch& one = micro_batches.front();
  const auto samples = static_cast<double>(one.context.samples.size());
  kept_bytes_per_sample_ =
      std::max(kept_bytes_per_sample_, static_cast<double>(one.kept.bytes() + one.gradients.bytes()) / samples);
}

void Rounds::add_shared_gradients(MicroBatch& micro_batch) {
  for (const Segment& segment : micro_batch.graph->segments) {
    for (const Value value : segment.shared) {
      if (micro_batch.gradients.has(value))
        replica_.gradients.add(micro_batch.graph->tape.live.at(value), micro_batch.gradients.take(value));
    }
  }
}

}  // namespace onebatch
