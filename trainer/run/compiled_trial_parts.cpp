#include "trainer/run/compiled_trial_parts.hpp"

#include "trainer/data/augment.hpp"
#include "trainer/device/host.hpp"
#include "trainer/device/memory_budget.hpp"
#include "trainer/verify/reference.hpp"

#include <ATen/ops/arange.h>

#include <algorithm>
#include <numeric>

namespace onebatch {
namespace {

constexpr double k_nudge = 0x1p-8;

}  // namespace

KeptWeights::KeptWeights(Replica& replica) : replica_(replica), tensors_(state_of(*replica.model)) {
  const UncountedMemory on_the_host;
  for (const NamedTensor& one : tensors_)
    before_.push_back(one.tensor.detach().to(at::kCPU, /*non_blocking=*/false, /*copy=*/true));
}

KeptWeights::~KeptWeights() {
  try {
    restore();
    replica_.gradients.begin_step();
  } catch (...) {
    if (std::uncaught_exceptions() == exceptions_)
      std::terminate();  // else what the device has failed of is on its way
  }
}

void KeptWeights::restore() const {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < tensors_.size(); ++i) at::Tensor(tensors_[i].tensor).copy_(before_[i]);
}

void on_host(const Configuration& configuration, const Dataset& data, const Replica& replica,
             const std::function<void(Replica&)>& work) {
  Configuration plain = configuration;
  plain.run.deterministic = Determinism::off;
  const UnlimitedMemory unlimited(MemoryBudget::install());
  Host host;
  Replica other(plain, data, host);
  set_weights(state_of(*other.model), state_of(*replica.model), weights_of(*replica.model));
  work(other);
}

void nudge(Replica& replica) {
  const at::NoGradGuard no_grad;
  std::vector<NamedTensor> numbers = replica.model->parameters();
  const std::vector<std::string>& statistics = replica.running_statistics;  // which evaluation reads
  for (const NamedTensor& one : replica.model->buffers()) {
    if (std::ranges::find(statistics, one.name) != statistics.end()) numbers.push_back(one);
  }
  for (const NamedTensor& one : numbers) {
    if (!one.tensor.is_floating_point()) continue;
    const at::Tensor steps =
        at::arange(one.tensor.numel(), one.tensor.options()).remainder(3).add_(1).view_as(one.tensor);
    at::Tensor(one.tensor).add_(steps, k_nudge);
  }
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
