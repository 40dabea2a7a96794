// Why a gradient is not the large batch's: a list of causes, each tried by an experiment of its own.
#pragma once

#include "trainer/base/results.hpp"
#include "trainer/step/step.hpp"
#include "trainer/verify/reference.hpp"

namespace onebatch {

struct Reason {
  std::string cause;  // as docs/documents.md lists them; empty: not this one
  std::string text;
};

/// The first parameter whose gradient holds NaN or infinity.
Reason not_finite(const Gradient& ours, const Gradient& exact);
/// Local or synchronised BatchNorm over `groups`; `ours` is what they give by themselves, to `off_groups`.
Reason local_batch_norm(const ReferenceParts& parts, std::size_t num_groups, double off_groups, double tolerance);
/// Sums of ranks that travel rounded to bfloat16: what that alone does to this batch against what was found.
Reason rounded_reduction(const ReferenceParts& parts, const Weights& weights, const std::vector<Group>& by_rank,
                         std::int64_t step, double found);
/// Samples that mix in micro-batches of the plan's own sizes, where a few samples did not show it.
Reason mixing_in_the_plan(const ReferenceParts& parts, const Weights& weights, const std::vector<Group>& groups,
                          std::int64_t step);
/// The model as it was taken apart against the model.
Reason taken_apart(const ReferenceParts& parts, double float64_error, double groups_error, double tolerance);
/// Of what remains: what has been tried.
Reason unknown();

/// How gradients are normalised: "local", "sync", "exact", "frozen" or "none".
std::string batch_norm_text(const ReferenceParts& parts);
std::string precision_text(at::ScalarType type);
/// The plan's micro-batches, of all ranks.
std::vector<Group> groups_of(const Plan& plan, std::span<const std::int64_t> samples);
/// Its ranks' shares.
std::vector<Group> shares_of(const Plan& plan, std::span<const std::int64_t> samples);
/// What is normalised together: the batch, every micro-batch, or every rank's in the same round.
std::vector<Group> batch_norm_groups(const ReferenceParts& parts, const Plan& plan,
                                     std::span<const std::int64_t> samples);

}  // namespace onebatch
