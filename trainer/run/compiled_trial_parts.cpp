#include "trainer/run/compiled_trial_parts.hpp"

#include "trainer/data/augment.hpp"
#include "trainer/device/memory_budget.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <numeric>

namespace onebatch {

KeptWeights::KeptWeights(Replica& replica) : replica_(replica), tensors_(state_of(*replica.model)) {
  const UncountedMemory on_the_host;
  for (const NamedTensor& one : tensors_)
    before_.push_back(one.tensor.detach().to(at::kCPU, /*non_blocking=*/false, /*copy=*/true));
}

KeptWeights::~KeptWeights() {
  restore();
  replica_.gradients.begin_step();
}

void KeptWeights::restore() const {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < tensors_.size(); ++i) at::Tensor(tensors_[i].tensor).copy_(before_[i]);
}

std::vector<std::int64_t> first_samples(std::int64_t count, const Dataset& data) {
  std::vector<std::int64_t> samples(static_cast<std::size_t>(std::min(count, data.size())));
  std::iota(samples.begin(), samples.end(), std::int64_t{0});
  return samples;
}

Batch batch_of(const Replica& replica, const Dataset& data, const std::vector<std::int64_t>& samples) {
  return replica.load(TrainingData(data, replica.augment, {replica.seed, 0}), samples).batch;
}

}  // namespace onebatch
