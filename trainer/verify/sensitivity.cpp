#include "trainer/verify/sensitivity.hpp"

#include "trainer/io/named_tensors.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <array>

namespace onebatch {
namespace {

// Note [A kink within rounding]
// A ReLU's derivative jumps from 0 to 1 where its input is 0, and a convolutional network has a million such inputs in
// a batch: in about every tenth batch one of them is closer to 0 than float32's rounding. Which side it falls on then
// depends on the order of a sum, one sample's part of the gradient is there or not, and two right computations differ
// by 1e-4 to 1e-3. Another order of the samples seldom shows it, since a convolution rounds a sample alike wherever it
// stands. But such a gradient is, to rounding, the exact one of weights that are some roundings off, which some of a
// few draws find. What computes in shorter numbers, or sums wrongly, is no weights' gradient.
constexpr int k_draws = 24;
constexpr std::array<double, 3> k_roundings = {4.0, 8.0, 16.0};
constexpr std::uint64_t k_seed = 20;

void move_weights(const Model& model, at::Generator& generator, double most) {
  const at::NoGradGuard no_grad;
  for (const NamedTensor& one : model.parameters()) {
    if (!one.tensor.is_floating_point()) continue;
    const at::Tensor noise = at::empty_like(one.tensor).uniform_(-most, most, generator);
    one.tensor.detach().mul_(noise.add_(1.0));
  }
}

}  // namespace

double apart_by_order(ReferenceModel& model, const Group& samples, std::int64_t step, const Gradient& exact) {
  const SavedTensors before(model.model().buffers());
  const Group backwards(samples.rbegin(), samples.rend());
  Group turned = samples;
  std::ranges::rotate(turned, turned.begin() + static_cast<std::ptrdiff_t>(turned.size() / 2));
  double most = 0.0;
  for (const Group& order : {backwards, turned}) {
    const double apart = difference_of(model.gradient_of({order}, step).gradient, exact).relative_l2;
    if (!(apart <= most)) most = apart;
    before.restore();
  }
  return most;
}

std::optional<Neighbour> neighbour_with(const NeighbourRequest& request, ReferenceModel& model, const Gradient& ours,
                                        const Gradient& exact) {
  const SavedTensors before(model.model().buffers());
  at::Generator generator = at::detail::createCPUGenerator(k_seed);
  std::optional<Neighbour> found;
  for (std::size_t draw = 0; draw < k_draws && !found; ++draw) {
    move_weights(model.model(), generator, request.u * k_roundings[draw % k_roundings.size()]);
    const Gradient neighbour = model.gradient_of({request.samples}, request.step).gradient;
    const double apart = difference_of(ours, neighbour).relative_l2;
    if (is_within(apart, request.near)) found = Neighbour{difference_of(neighbour, exact).relative_l2, apart};
    before.restore();
    model.take_parameters(request.weights);
  }
  return found;
}

}  // namespace onebatch
