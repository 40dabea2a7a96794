// Whether a model's loss is a sum over its samples: whether the same samples at once and in parts give the same
// gradient.
//
// That is what accumulation needs of a model, and all it needs. BatchNorm is frozen for it, so that what is left mixes
// samples in a way that no mode of BatchNorm mends.
#pragma once

#include "trainer/verify/reference.hpp"

namespace onebatch {

struct SeparationRequest {
  ReferenceParts parts;
  const Weights& weights;
  std::vector<Group> groups;  // two or more
  std::int64_t step = 0;
  at::ScalarType type = at::kDouble;
};

struct Separation {
  enum class Outcome { same, differs, not_judged };
  Outcome outcome = Outcome::same;
  double relative_l2 = 0.0;
  double tolerance = 0.0;
  std::string cause;   // "mixes_samples", "noise", "hidden_state", "changed_parameters", "loss_weight", "not_finite"
  std::string reason;  // in words, with the operator or the buffer where one was found; of not_judged too
};

/// The first of `batch`, at most `wanted`, of which each has a label that counts.
Group weighing_samples(const ReferenceParts& parts, const std::vector<std::int64_t>& batch, std::size_t wanted);
/// On the CPU; the generators' states are the caller's to keep. Finds out by further experiments why, where they
/// differ. May throw whatever the model throws.
Separation separate(const SeparationRequest& request);
/// The same of these samples in unequal parts, of one and two and the rest: parts of one size hide what a mean does,
/// and a model may treat one sample otherwise; in two parts where it does not take one.
Separation separate_unequally(const ReferenceParts& parts, const Weights& weights, const Group& samples,
                              std::int64_t step, at::ScalarType type);

}  // namespace onebatch
