#include "trainer/step/padding_check.hpp"

#include "trainer/data/padding.hpp"
#include "trainer/device/host.hpp"

#include <ATen/ops/linalg_vector_norm.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace onebatch {
namespace {

constexpr double k_tolerance = 1e-10;
constexpr std::size_t k_samples = 3;

struct Made {
  double loss = 0.0;
  double weight = 0.0;
  at::Tensor gradient;
};

Made made_of(Replica& replica, const Dataset& data, std::int64_t sample) {
  const std::span<const std::int64_t> samples(&sample, 1);
  replica.gradients.begin_step();
  const auto [batch, weight] = replica.load(data, samples);
  const Replica::Forward forward = replica.forward(batch, {replica.seed, 0, samples});
  forward.loss.backward();
  return {forward.loss.item<double>(), forward.weight.defined() ? forward.weight.item<double>() : weight,
          replica.gradients.flat().clone()};
}

enum class Verdict { same, other, nothing_seen };

Verdict judge(Replica& replica, const Dataset& data, std::int64_t sample) {
  const std::int64_t length = data.lengths()[static_cast<std::size_t>(sample)];
  const Made own = made_of(replica, data, sample);
  const Made padded = made_of(replica, PaddedTo(data, std::min(2 * length, longest_of(data))), sample);
  const double norm = at::linalg_vector_norm(own.gradient).item<double>();
  const double error = at::linalg_vector_norm(padded.gradient.sub(own.gradient)).item<double>();
  const bool same = error <= k_tolerance * norm &&
                    std::abs(padded.loss - own.loss) <= k_tolerance * std::abs(own.loss) &&
                    std::abs(padded.weight - own.weight) <= k_tolerance * std::abs(own.weight);
  if (!same) return Verdict::other;
  return norm > 0.0 ? Verdict::same : Verdict::nothing_seen;
}

// The shortest, and others up to the median, of unlike lengths.
std::vector<std::int64_t> short_samples(const Dataset& data) {
  const auto lengths = data.lengths();
  std::vector<std::int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return lengths[static_cast<std::size_t>(a)] < lengths[static_cast<std::size_t>(b)];
  });
  const std::int64_t longest = longest_of(data);
  std::erase_if(order, [&](std::int64_t sample) { return lengths[static_cast<std::size_t>(sample)] == longest; });
  return order;
}

}  // namespace

Padding padding_needed(const Configuration& configuration, const Dataset& data) {
  Configuration in_float64 = in_precision(Precision::float64, configuration);
  in_float64.run.deterministic = Determinism::off;
  const auto candidates = short_samples(data);
  std::size_t seen = 0;
  try {
    const UnlimitedMemory on_the_host(MemoryBudget::install());
    Host host;
    Replica replica(in_float64, data, host);
    for (std::size_t i = 0; i < k_samples && i < candidates.size(); ++i) {
      const std::size_t place = i * (candidates.size() - 1) / (2 * (k_samples - 1));
      const Verdict verdict = judge(replica, data, candidates[place]);
      if (verdict == Verdict::other) return Padding::global_batch;
      seen += verdict == Verdict::same ? 1 : 0;
    }
  } catch (const std::exception&) {
    return Padding::global_batch;  // which is right for every model
  }
  return seen > 0 ? Padding::micro_batch : Padding::global_batch;
}

}  // namespace onebatch
