#include "trainer/graph/capture_check.hpp"

#include "trainer/accumulation.hpp"
#include "trainer/device/host.hpp"
#include "trainer/formatted.hpp"
#include "trainer/graph/graph_step.hpp"

#include <ATen/ops/linalg_vector_norm.h>

#include <algorithm>
#include <numeric>

namespace onebatch {
namespace {

constexpr std::int64_t k_samples = 4;
constexpr double k_tolerance = 1e-8;

Configuration in_float64(Configuration configuration) {
  configuration.precision.compute = configuration.precision.parameters = Precision::float64;
  return configuration;
}

}  // namespace

void check_capture(const Configuration& configuration, const Dataset& data) {
  Host host;
  Replica replica(in_float64(configuration), data, host);
  const BatchNormMode mode = replica.has_batch_statistics ? configuration.batch_norm.mode : BatchNormMode::local;
  replica.graph_step = std::make_unique<GraphStep>(GraphOptions{mode, configuration.memory.segments, AutogradGraph::recorded});
  std::vector<std::int64_t> samples(static_cast<std::size_t>(std::min(k_samples, data.size())));
  std::iota(samples.begin(), samples.end(), std::int64_t{0});
  replica.gradients.begin_step();
  replica.forward(replica.load(data, samples, 0).batch, {replica.seed, 0, samples}).loss.backward();
  const at::Tensor expected = replica.gradients.flat().clone();
  replica.gradients.begin_step();
  accumulate_gradient(replica, data, samples, {{static_cast<std::int64_t>(samples.size()), 1}}, 0);
  const double error = at::linalg_vector_norm(replica.gradients.flat().sub(expected)).item<double>();
  const double norm = at::linalg_vector_norm(expected).item<double>();
  if (error > k_tolerance * norm)
    throw CannotCapture(formatted(
        "the model cannot be taken apart: the gradient of its parts differs from its own by %.1e (relative L2, float64)", error / norm));
}

}  // namespace onebatch
