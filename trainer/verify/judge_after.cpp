// What verify judges after its steps: validation, the ranks' replicas, and all of it together.
#include "trainer/verify/judge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace onebatch {

void Judge::judge(const TrainedValidation& found) {
  const auto [exact, weight] = reference_validation(parts_, {c10::Device(c10::kCPU), at::kDouble}, found);
  const EvaluationResult own = reference_validation(parts_, {c10::Device(c10::kCPU), std::nullopt}, found).result;
  const bool counts = weight > 0.0;  // else there is no loss, here as there
  const double error = counts || !std::isnan(found.result.loss) ? apart(found.result.loss, exact.loss) : 0.0;
  const Judgement loss = judge_number(error, counts ? apart(own.loss, exact.loss) : 0.0, roundoff_of_numbers());
  add("loss", "validation", error, loss);
  Judgement accuracy{0.0, Verdict::pass};
  if (found.result.accuracy && exact.accuracy) {
    const double off = std::abs(*found.result.accuracy - *exact.accuracy);
    // A tie that rounding breaks.
    const double one_tie = report_.precision == "float64" ? 0.0 : 1.0 / static_cast<double>(exact.samples);
    accuracy.tolerance = 2.0 * std::abs(*own.accuracy - *exact.accuracy) + one_tie + unit_roundoff(at::kFloat);
    accuracy.verdict = is_within(off, accuracy.tolerance) ? Verdict::pass : Verdict::fail;
    add("accuracy", "validation", off, accuracy);
  }
  const Judgement unchanged{0.0, found.model_changed ? Verdict::fail : Verdict::pass};
  add("model after it", "validation", found.model_changed ? HUGE_VAL : 0.0, unchanged);
  if (found.model_changed)
    take({"validation", "validation changes the model: it updates buffers in evaluation's phase"});
  if (loss.verdict == Verdict::fail || accuracy.verdict == Verdict::fail)
    take({"validation", "in evaluation the model's answers depend on which samples are together, or are drawn"});
}

void Judge::judge_replicas(const std::string& parameter_that_differs) {
  const bool same = parameter_that_differs.empty();
  add("replicas", "after the last step", same ? 0.0 : HUGE_VAL, {0.0, same ? Verdict::pass : Verdict::fail});
  if (!same)
    take({"replicas", "the ranks' parameters are no longer the same, first in " + parameter_that_differs +
                          ": something but the optimizer changes them"});
}

VerifyReport Judge::finish() {
  const auto has = [&](Verdict verdict) {
    return std::ranges::any_of(report_.compared, [&](const Comparison& c) { return c.verdict == verdict; });
  };
  report_.verdict = has(Verdict::cannot_judge) ? Verdict::cannot_judge : Verdict::pass;
  if (has(Verdict::fail)) report_.verdict = Verdict::fail;
  report_.pass = report_.verdict == Verdict::pass;
  if (report_.verdict == Verdict::pass) report_.cause = report_.reason = "";
  if (report_.verdict == Verdict::cannot_judge)
    take({"precision", fmt::format("{} puts one single batch itself {:.2g} off float64 (relative L2), and more than "
                                   "{:.0e} says nothing about a plan",
                                   report_.precision, report_.reference_relative_l2, k_most_own_error)});
  if (report_.verdict == Verdict::fail) take(unknown());
  return report_;
}

}  // namespace onebatch
