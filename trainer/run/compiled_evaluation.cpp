// Whether native code evaluates as the program does.
#include "trainer/device/failed_backward.hpp"
#include "trainer/device/host.hpp"
#include "trainer/device/memory_budget.hpp"
#include "trainer/run/compiled_trial_parts.hpp"
#include "trainer/run/compiled_trials.hpp"
#include "trainer/verify/difference.hpp"

#include <ATen/ops/isfinite.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace onebatch {
namespace {

constexpr std::int64_t k_samples = 3;  // of the comparison
constexpr double k_times_the_own = 2.0;
constexpr double k_times_an_order = 8.0;       // in float64: of what another order of the samples makes
constexpr double k_roundings = 16.0;           // that are no difference, whatever the own error
constexpr double k_roundings_of_a_sum = 64.0;  // likewise of a loss alone, which may by chance be nearer
constexpr double k_in_float64 = 1e-12;         // likewise

// What a loss is taken of, or the loss's sum and its weight, as fp64 on the host.
using Evaluated = std::vector<at::Tensor>;

Evaluated evaluated_by(Replica& replica, const Dataset& data, bool reversed = false) {
  const InEvaluation evaluation(*replica.model);
  std::vector<std::int64_t> samples = first_samples(k_samples, data);
  if (reversed) std::ranges::reverse(samples);
  const Replica::Forward made = replica.forward(batch_of(replica, data, samples), {replica.seed, 1, samples});
  const UncountedMemory on_the_host;
  if (replica.loss.is_the_models()) return {as_numbers(made.loss), as_numbers(made.weight)};
  const at::Tensor outputs = as_numbers(made.outputs);
  return {reversed && made.outputs.size(0) == std::ssize(samples) ? as_numbers(made.outputs.flip(0)) : outputs};
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

// Classes that a program rules out have the same infinity everywhere.
double error_of(const Evaluated& made, const Evaluated& exact) {
  double largest = 0.0;
  for (std::size_t i = 0; i < made.size(); ++i) {
    const at::Tensor same = made[i].eq(exact[i]).logical_and_(at::isfinite(made[i]).logical_not_());
    const double error = difference_of(made[i].masked_fill(same, 0.0), exact[i].masked_fill(same, 0.0)).relative_l2;
    if (std::isnan(error)) return error;
    largest = std::max(largest, error);
  }
  return largest;
}

double no_difference(const Replica& replica) {
  if (replica.type == at::kDouble) return k_in_float64;
  const double roundings = replica.loss.is_the_models() ? k_roundings_of_a_sum : k_roundings;
  return std::max(roundings * unit_roundoff(replica.type), replica.autocast ? unit_roundoff(*replica.autocast) : 0.0);
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
  const double own = error_of(plain, exact);
  const double error = error_of(made, exact);
  const double times = replica.type == at::kDouble ? k_times_an_order : k_times_the_own;
  if (is_within(error, std::max(times * own, no_difference(replica)))) return "";
  return fmt::format("its native code is {:.2g} off, and the program's own error is {:.2g}", error, own);
}

}  // namespace onebatch
