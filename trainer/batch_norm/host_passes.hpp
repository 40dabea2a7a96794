// BatchNorm's passes over tensors in host memory. Elements may be float32, but what is done with one is done in
// float64, around the mean that all micro-batches and ranks have agreed on: x * a + b in float32 loses as many digits
// as the mean is larger than the deviation.
#pragma once

#include "trainer/batch_norm/statistics.hpp"

namespace onebatch::host_passes {

/// By channel, in float64.
using Channels = std::vector<double>;

/// Whether these passes are for such inputs [N, C, ...]: on the CPU, float32 or float64.
bool take(const at::Tensor& inputs);

Moments moments(const at::Tensor& inputs);

/// Σ g and Σ g · (x − mean) · scale.
OutputSums output_sums(const at::Tensor& gradient, const at::Tensor& inputs, const Channels& mean,
                       const Channels& scale);

/// What is done to each element of a channel: (x − mean) · slope + offset + g · factor. Without a gradient the last is
/// left out.
struct Affine {
  Channels mean;
  Channels slope;
  Channels offset;
  Channels factor = {};
};

/// Of the inputs' type, and of their strides where these are channels last.
at::Tensor applied(const Affine& affine, const at::Tensor& inputs, const at::Tensor& gradient = {});

}  // namespace onebatch::host_passes
