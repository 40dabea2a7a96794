// BatchNorm's arithmetic in two halves: what is summed over many micro-batches and ranks, and what is then done to each element.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace onebatch {

/// Count, mean and sum of squares around the mean, per channel, in float64 on the host.
struct Moments {
  double count = 0.0;
  std::vector<double> mean;
  std::vector<double> squares;

  /// Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979, formula 2.1.
  void add(const Moments& more);
  [[nodiscard]] std::vector<double> variance() const;  // divided by the count
};

/// Of `inputs` [N, C, ...] over all dimensions but the second.
Moments moments_of(const at::Tensor& inputs);

/// What normalises, per channel. On a device, and for short types, ATen's kernels do it, with a mean that is rounded: what the rounding has
/// left out goes into their offset.
struct Normaliser {
  std::vector<double> mean;
  std::vector<double> invstd;  // 1 / sqrt(variance + eps)
  std::vector<double> left;    // (mean - rounded mean) * invstd
  double eps = 0.0;
  double count = 0.0;
  at::Tensor rounded_mean = {};  // in the type of BatchNorm's parameters, on the inputs' device
  at::Tensor variance = {}, left_on_device = {};
};

Normaliser make_normaliser(const Moments& moments, double eps, const at::TensorOptions& options);

/// (x − mean) / sqrt(variance + eps) · weight + bias. Weight and bias may be undefined.
at::Tensor normalised(const at::Tensor& inputs, const at::Tensor& weight, const at::Tensor& bias, const Normaliser& by);

/// Σ g and Σ g·x̂ per channel, where g is the gradient at the outputs: also the gradients of bias and weight.
struct OutputSums {
  std::vector<double> gradient;
  std::vector<double> gradient_times_normalised;
  void add(const OutputSums& more);
};

OutputSums output_sums(const at::Tensor& gradient, const at::Tensor& inputs, const Normaliser& by);

/// The gradient at the inputs (Ioffe and Szegedy, 2015, section 3), from the sums over everything that shares the statistics.
at::Tensor input_gradient(const at::Tensor& gradient, const at::Tensor& inputs, const at::Tensor& weight, const Normaliser& by,
                          const OutputSums& total);

/// running = (1 − momentum) · running + momentum · statistic, with the variance divided by count − 1, as one batch of all would. Undefined
/// tensors are left out.
void update_running(const at::Tensor& running_mean, const at::Tensor& running_var, const Moments& moments, double momentum);

}  // namespace onebatch
