#include "trainer/step/capture_check.hpp"

#include "trainer/device/host.hpp"
#include "trainer/io/named_tensors.hpp"
#include "trainer/step/accumulation.hpp"
#include "trainer/step/graph_step.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/rand.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace onebatch {
namespace {

// Relative.
struct Tolerance {
  Precision precision;
  const char* name;
  double error;
};
constexpr Tolerance k_float64 = {Precision::float64, "float64", 1e-8};
constexpr Tolerance k_float32 = {Precision::float32, "float32", 1e-3};
constexpr double k_change = 0.1;  // of parameters
constexpr std::uint64_t k_noise_seed = 20;
constexpr std::int64_t k_tries = 8;

using SampleList = std::vector<std::int64_t>;

// An optimizer that keeps nothing: it is never asked.
Configuration without_optimizer(Configuration configuration) {
  configuration.optimizer = OptimizerConfiguration();
  configuration.optimizer.kind = "sgd";
  configuration.run.deterministic =
      configuration.run.deterministic == Determinism::bitwise ? Determinism::on : configuration.run.deterministic;
  return configuration;
}

// Signs stay: a logarithm's or a root's argument too.
void change_parameters(const Replica& replica) {
  const at::NoGradGuard no_grad;
  at::Generator generator = at::detail::createCPUGenerator(k_noise_seed);
  for (const auto& [name, tensor] : replica.model->parameters()) {
    if (!tensor.requires_grad() || !tensor.is_floating_point()) continue;
    const at::Tensor noise = at::rand(tensor.sizes(), generator, tensor.options().requires_grad(false));
    tensor.mul_(noise.mul(k_change).add_(1.0 - k_change / 2))
        .add_(tensor.eq(0.0).to(tensor.scalar_type()), k_change * k_change);
  }
}

// What a step's part comes to.
struct Outcome {
  double loss = 0.0;
  double weight = 0.0;
  at::Tensor gradient;
  std::vector<NamedTensor> buffers;
};

Outcome ordinary(Replica& replica, const Dataset& data, const SampleList& samples, std::int64_t step) {
  replica.gradients.begin_step();
  const auto [batch, weight] = replica.load(data, samples);
  const Replica::Forward made = replica.forward(batch, {replica.seed, step, samples});
  made.loss.backward();
  return {made.loss.item<double>(), made.weight.defined() ? made.weight.item<double>() : weight,
          replica.gradients.flat().clone(), copies_of(replica.model->buffers())};
}

Outcome by_the_tape(const MicroBatchRunner& runner, const Dataset& data, const SampleList& samples, std::int64_t step) {
  Replica& replica = runner.replica();
  replica.gradients.begin_step();
  const LocalSums sums =
      accumulate_gradient(runner, data, samples, {{static_cast<std::int64_t>(samples.size()), 1}}, step);
  return {sums.loss, sums.weight.value(), replica.gradients.flat().clone(), copies_of(replica.model->buffers())};
}

// Relative; NaN where either is.
double error_of(const at::Tensor& ours, const at::Tensor& expected) {
  const at::Tensor truth = expected.to(at::kDouble);
  const double error = at::linalg_vector_norm(ours.to(at::kDouble).sub(truth)).item<double>();
  const double norm = at::linalg_vector_norm(truth).item<double>();
  return error == 0.0 ? 0.0 : error / norm;
}

// What the model itself rounds where its samples come in another order, and no less than the tolerance.
double allowed(const Tolerance& tolerance, double own_error) {
  constexpr double k_times_own_error = 100.0;
  return std::max(tolerance.error, k_times_own_error * own_error);
}

void compare(const Tolerance& tolerance, const std::string& what, double error,
             const std::function<double()>& own_error) {
  if (error <= tolerance.error || error <= allowed(tolerance, own_error())) return;  // false for NaN
  throw CannotCapture(
      fmt::format("the model cannot be taken apart: on other samples, and with other parameters, than those that it "
                  "was watched with, the {} of its parts differs from its own by {:.1e} (relative, {}): does its "
                  "forward read numbers out of tensors (.tolist(), .item()), or keep something between forwards?",
                  what, error, tolerance.name));
}

// `reversed`: what is expected of the same samples in reverse order.
void compare(const Tolerance& tolerance, const Outcome& ours, const Outcome& expected,
             const std::function<Outcome()>& reversed) {
  const auto scalar = [](double value) { return at::full({}, value, at::kDouble); };
  if (!std::isfinite(expected.loss) || !at::isfinite(expected.gradient).all().item<bool>())
    throw CannotCapture(
        "the model cannot be taken apart: its own loss or gradient of a few samples is not finite (NaN or infinity), "
        "so that its parts cannot be compared with it: look at the data and the initial weights");
  compare(tolerance, "loss", error_of(scalar(ours.loss), scalar(expected.loss)),
          [&] { return error_of(scalar(reversed().loss), scalar(expected.loss)); });
  compare(tolerance, "loss's weight", error_of(scalar(ours.weight), scalar(expected.weight)), [] { return 0.0; });
  compare(tolerance, "gradient", error_of(ours.gradient, expected.gradient),
          [&] { return error_of(reversed().gradient, expected.gradient); });
  for (std::size_t i = 0; i < expected.buffers.size(); ++i) {
    const auto& [name, theirs] = expected.buffers[i];
    if (theirs.equal(ours.buffers[i].tensor)) continue;  // infinities too
    compare(tolerance, "buffer " + name, error_of(ours.buffers[i].tensor, theirs),
            [&] { return error_of(reversed().buffers[i].tensor, theirs); });
  }
}

// So many samples from `first` on, around the data's end.
SampleList samples_from(std::int64_t first, std::int64_t count, const Dataset& data) {
  SampleList samples(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) samples[static_cast<std::size_t>(i)] = (first + i) % data.size();
  return samples;
}

std::vector<std::vector<std::int64_t>> shapes_of(const Replica& replica, const Dataset& data,
                                                 const SampleList& samples) {
  std::vector<std::vector<std::int64_t>> shapes;
  for (const at::Tensor& tensor : data.gather(samples, replica.loss_type).tensors())
    shapes.push_back(tensor.sizes().vec());
  return shapes;
}

// Others whose batch has the same shapes; else the same in another order.
SampleList others_like(const Replica& replica, const Dataset& data, const SampleList& samples) {
  const auto shapes = shapes_of(replica, data, samples);
  const auto count = static_cast<std::int64_t>(samples.size());
  for (std::int64_t i = 1; i <= k_tries && i * count < data.size(); ++i) {
    const SampleList others = samples_from(samples.front() + i * count, count, data);
    if (shapes_of(replica, data, others) == shapes) return others;
  }
  return {samples.rbegin(), samples.rend()};
}

void check_in(const Tolerance& tolerance, const Configuration& given, const Dataset& data,
              const Examination& examination) {
  const UnlimitedMemory on_the_host(MemoryBudget::install());
  Host host;
  const Configuration configuration = in_precision(tolerance.precision, without_optimizer(given));
  Replica replica(configuration, data, host,
                  make_model_for(configuration, data, host.device(), scalar_type(tolerance.precision)), nullptr,
                  examination.examined ? &examination : nullptr);
  auto made = run_by_graph(configuration, replica, AutogradGraph::recorded);
  GraphStep& graph = *made;
  const MicroBatchRunner runner(replica, std::move(made));
  // Statistics of one sample are none.
  const std::int64_t least = replica.has_batch_statistics ? 2 : 1;
  std::vector<SampleList> watched;
  for (const std::int64_t size : {least + 1, least}) {
    const SampleList samples = samples_from(0, std::min(size, data.size()), data);
    if (!watched.empty() && watched.back().size() == samples.size()) break;
    graph.watch(replica, data, samples, 0);
    watched.push_back(samples);
  }
  change_parameters(replica);
  for (const SampleList& samples : watched) {
    const SampleList others = others_like(replica, data, samples);
    const SavedTensors before(replica.model->buffers());
    const Outcome expected = ordinary(replica, data, others, 1);
    before.restore();
    const Outcome ours = by_the_tape(runner, data, others, 1);
    before.restore();
    compare(tolerance, ours, expected, [&] {
      Outcome reversed = ordinary(replica, data, {others.rbegin(), others.rend()}, 1);
      before.restore();
      return reversed;
    });
  }
}

}  // namespace

void check_capture(const Configuration& configuration, const Dataset& data, const Examination& examination) {
  try {
    return check_in(k_float64, configuration, data, examination);
  } catch (const CannotCapture&) {
    throw;
  } catch (const std::exception&) {
    if (configuration.precision.parameters == Precision::float64) throw;
  }
  check_in(k_float32, configuration, data, examination);  // a trace may have float32 in it, where float64 does not go
}

}  // namespace onebatch
