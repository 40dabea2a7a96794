// Dropout whose mask is a function of the sample, not of the plan. See Note [One global batch].
#pragma once

#include "trainer/models/model.hpp"

namespace onebatch {

/// 0 with `probability`, else 1, in float32 on the CPU; `sizes` [M, ...], where M is a multiple k·N of the N samples:
/// rows kn … kn + k − 1 are sample n's. An element draws from a counter-based generator keyed by (seed, step, layer,
/// sample, its coordinates among the sample's), so that any split of the batch gets the same mask, and so does a
/// sequence that is padded further: also in its attention [.., T, T]. Where a sample stands in one batch twice, both
/// get one mask. Throws UserError where the rows are no multiple of the samples.
at::Tensor sample_noise(at::IntArrayRef sizes, double probability, std::int64_t layer, const ForwardContext& context);

/// What a GPU draws by, int64 [1 + N], on the host: a number of seed and step, then the samples.
at::Tensor noise_key(const ForwardContext& context);

/// noise_key() where a model computes; it is brought there once for a context.
const at::Tensor& key_on(c10::Device device, const ForwardContext& context);

/// The same as sample_noise(), but `kept` for 1, where `like` is and in its type. A GPU draws it itself, with the same
/// bits; where it cannot, the host draws it and copies it there.
at::Tensor sample_noise_like(const at::Tensor& like, at::IntArrayRef sizes, double probability, double kept,
                             std::int64_t layer, const ForwardContext& context);

/// The same of what all samples of a step share, as positions: of any sizes, the same in every micro-batch.
at::Tensor shared_noise_like(const at::Tensor& like, at::IntArrayRef sizes, double probability, double kept,
                             std::int64_t layer, const ForwardContext& context);

/// Whether the host has begun to draw for a GPU of this process, and that is not told yet; and why, once.
bool has_host_draws_to_tell();
std::string take_host_draws();

/// Zeroes elements of `inputs` [M, ...] with `probability` and scales the rest by 1/(1 - probability).
at::Tensor sample_dropout(const at::Tensor& inputs, double probability, std::int64_t layer,
                          const ForwardContext& context);

}  // namespace onebatch
