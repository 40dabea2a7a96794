// Dropout whose mask is a function of the sample, not of the plan. See Note [One global batch].
#pragma once

#include "trainer/models/model.hpp"

namespace onebatch {

/// Zeroes elements of `inputs` [N, ...] with `probability` and scales the rest by 1/(1 - probability). Element j of the row of sample i
/// draws from a counter-based generator keyed by (seed, step, layer, i, j), so that any split of the batch gets the same mask. Where a
/// sample stands in one batch twice, both rows get one mask.
at::Tensor sample_dropout(const at::Tensor& inputs, double probability, std::int64_t layer, const ForwardContext& context);

}  // namespace onebatch
