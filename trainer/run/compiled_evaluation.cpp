// Whether native code evaluates as the program does.
#include "trainer/device/failed_backward.hpp"
#include "trainer/device/host.hpp"
#include "trainer/device/memory_budget.hpp"
#include "trainer/run/compiled_trial_parts.hpp"
#include "trainer/run/compiled_trials.hpp"
#include "trainer/verify/difference.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace onebatch {
namespace {

constexpr double k_roundings_of_a_sum = 64.0;  // as k_roundings, of a loss alone, which may by chance be nearer

// As fp64 on the host.
struct Evaluated {
  at::Tensor outputs;            // undefined where the program returns its loss
  std::vector<at::Tensor> sums;  // of the loss, and its weight where the program tells it
};

Evaluated evaluated_by(Replica& replica, const Dataset& data, bool reversed = false) {
  const InEvaluation evaluation(*replica.model);
  std::vector<std::int64_t> samples = first_samples(k_samples, data);
  if (reversed) std::ranges::reverse(samples);
  const Replica::Forward made = replica.forward(batch_of(replica, data, samples), {replica.seed, 1, samples});
  const UncountedMemory on_the_host;
  Evaluated found{{}, {as_numbers(made.loss)}};
  if (made.weight.defined()) found.sums.push_back(as_numbers(made.weight));
  if (replica.loss.is_the_models()) return found;
  const bool turns = reversed && made.outputs.size(0) == std::ssize(samples);
  found.outputs = as_numbers(turns ? made.outputs.flip(0) : made.outputs);
  return found;
}

// By the program as it is, on the host where the device has no memory for it. In float64 that is what is compared with,
// and what rounding makes of it shows where its samples come in another order.
Evaluated evaluated_uncompiled(const Configuration& configuration, const Dataset& data, Replica& replica) {
  const Uncompiled scope(*compiled_of(*replica.model));
  Evaluated made;
  const auto work = [&](Replica& of) { made = evaluated_by(of, data, replica.type == at::kDouble); };
  if (!fits(replica.device, [&] { work(replica); })) on_host(configuration, data, replica, work);
  return made;
}

// Without what both rule out by the same number, which may be a large one.
double error_of(const at::Tensor& made, const at::Tensor& exact) {
  const at::Tensor same = made.eq(exact);
  return difference_of(made.masked_fill(same, 0.0), exact.masked_fill(same, 0.0)).relative_l2;
}

double relative(const at::Tensor& made, const at::Tensor& exact) {
  return apart(made.item<double>(), exact.item<double>());
}

// The larger of errors of which one is no number is none either.
double larger(double one, double other) {
  return std::isnan(one) || one > other ? one : other;
}

struct Errors {
  double outputs = 0.0;
  double sums = 0.0;
};

Errors errors_of(const Evaluated& made, const Evaluated& exact) {
  Errors errors;
  if (exact.outputs.defined()) errors.outputs = error_of(made.outputs, exact.outputs);
  for (std::size_t i = 0; i < exact.sums.size(); ++i)
    errors.sums = larger(relative(made.sums[i], exact.sums[i]), errors.sums);
  return errors;
}

// Empty: it is none.
std::string why_not(double error, double own, double roundings, const Replica& replica) {
  const bool is_exact = replica.type == at::kDouble;
  const double of_the_type = is_exact ? k_in_float64 : roundings * unit_roundoff(replica.type);
  const double no_difference = std::max(of_the_type, replica.autocast ? unit_roundoff(*replica.autocast) : 0.0);
  if (is_within(error, std::max((is_exact ? k_times_an_order : k_times_the_own) * own, no_difference))) return "";
  return fmt::format("its native code is {:.2g} off, and the program's own error is {:.2g}", error, own);
}

}  // namespace

std::string why_not_evaluate(const Configuration& configuration, const Dataset& data, Replica& replica) {
  const KeptWeights kept(replica);
  nudge(replica);
  Evaluated exact;
  on_host(in_precision(Precision::float64, configuration), data, replica,
          [&](Replica& wide) { exact = evaluated_by(wide, data); });
  const Evaluated plain = evaluated_uncompiled(configuration, data, replica);
  Evaluated made;
  if (!fits(replica.device, [&] { made = evaluated_by(replica, data); }))
    return fmt::format("not even a micro-batch of {} fits on {}", k_samples, replica.device.name());
  const Errors own = errors_of(plain, exact);
  const Errors errors = errors_of(made, exact);
  const std::string why = why_not(errors.outputs, own.outputs, k_roundings, replica);
  return why.empty() ? why_not(errors.sums, own.sums, k_roundings_of_a_sum, replica) : why;
}

}  // namespace onebatch
