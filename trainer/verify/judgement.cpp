#include "trainer/verify/judgement.hpp"

#include <ATen/ops/linalg_vector_norm.h>

#include <algorithm>
#include <cmath>

namespace onebatch {
namespace {

constexpr double k_times_own_error = 2.0;
constexpr double k_roundings = 33.0;  // 2e-6 in float32
// 1e-12: layers' condition, which float32's own error shows and float64's may not.
constexpr double k_roundings_in_float64 = 9.01e3;
constexpr double k_roundings_of_number = 256.0;  // of a sum of terms of both signs
constexpr double k_times_expected = 4.0;         // of what rounding by chance would do

double least_tolerance(double u) {
  return u * (u < 1e-12 ? k_roundings_in_float64 : k_roundings);
}

Verdict verdict_of(double error, double tolerance, double needs) {
  if (!is_within(error, tolerance)) return Verdict::fail;
  return needs > k_most_own_error ? Verdict::cannot_judge : Verdict::pass;
}

}  // namespace

Judgement judge(double error, double own_error, double u, const std::function<double()>& by_summing) {
  if (!std::isfinite(error))
    return {std::max(least_tolerance(u), k_times_own_error * (std::isfinite(own_error) ? own_error : 0.0)),
            Verdict::fail};
  if (!std::isfinite(own_error)) return {least_tolerance(u), Verdict::cannot_judge};
  double tolerance = std::max(least_tolerance(u), k_times_own_error * own_error);
  double needs = own_error;
  if (!is_within(error, tolerance)) {
    const double summing = k_times_expected * by_summing();
    if (summing > tolerance) {
      tolerance = summing;
      needs = std::max(needs, summing);
    }
  }
  // In a precision that says nothing, what is off by more than twice the own error may be rounding too.
  if (own_error > k_most_own_error) return {tolerance, Verdict::cannot_judge};
  return {tolerance, verdict_of(error, tolerance, needs)};
}

double rounding_of_sums(ReferenceModel& model, const std::vector<Group>& groups, std::int64_t step, double u) {
  std::size_t count = 0;
  for (const Group& group : groups) count += group.size();
  double squares = 0.0;
  double last = 0.0;
  for (const Group& group : groups) {
    model.add(group, step, count);
    last = 0.0;
    for (const auto& [name, tensor] : model.model().parameters()) {
      if (tensor.grad().defined())
        last += std::pow(at::linalg_vector_norm(as_numbers(tensor.grad())).item<double>(), 2);
    }
    squares += last;
  }
  model.take_gradient(1.0, count);
  return last > 0.0 ? u * std::sqrt(squares / last) : 0.0;
}

Judgement judge_number(double error, double own_error, double u) {
  if (!std::isfinite(error)) return {k_roundings_of_number * u, Verdict::fail};
  if (!std::isfinite(own_error)) return {k_roundings_of_number * u, Verdict::cannot_judge};
  const double tolerance = std::max(k_roundings_of_number * u, 4.0 * own_error);
  return {tolerance, verdict_of(error, tolerance, own_error)};
}

}  // namespace onebatch
