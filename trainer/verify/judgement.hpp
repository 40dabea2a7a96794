// How large a difference is no mistake: from what one single batch's own rounding is, and from how many sums there are.
#pragma once

#include "trainer/base/results.hpp"
#include "trainer/verify/reference.hpp"

#include <functional>

namespace onebatch {

constexpr double k_most_own_error = 1e-2;  // beyond it a precision says nothing

struct Judgement {
  double tolerance = 0.0;
  Verdict verdict = Verdict::fail;
};

/// Of a difference of `error`, where one single batch is itself off by `own_error`, in a type of the unit roundoff `u`:
/// up to twice the own error, or so many roundings as nothing is without. Where that is not enough, `by_summing` is
/// asked for what the plan's own number of sums rounds. NaN fails.
Judgement judge(double error, double own_error, double u, const std::function<double()>& by_summing);

/// What rounding the running sum after every group adds to the gradient, relative: the sums' sizes by their rounding,
/// as if by chance. From `model`, in float64.
double rounding_of_sums(ReferenceModel& model, const std::vector<Group>& groups, std::int64_t step, double u);

/// Of one number, of which a single batch's own differs by `own_error`.
Judgement judge_number(double error, double own_error, double u);

}  // namespace onebatch
