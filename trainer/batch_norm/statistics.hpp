// BatchNorm's arithmetic in two halves: what is summed over many micro-batches and ranks, and what is then done to each
// element.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace onebatch {

/// Count, mean and sum of squares around the mean, per channel: float64 [C], where the inputs lie, so that nobody waits
/// for a device.
struct Moments {
  double count = 0.0;
  at::Tensor mean = {};  // undefined where the count is 0
  at::Tensor squares = {};

  /// Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979,
  /// formula 2.1.
  void add(const Moments& more);
};

/// Of `inputs` [N, C, ...] over all dimensions but the second.
Moments moments_of(const at::Tensor& inputs);

/// What normalises, per channel. On a device, and for short types, ATen's kernels do it, with a mean that is rounded:
/// what the rounding has left out goes into their offset.
struct Normaliser {
  at::Tensor mean;
  at::Tensor invstd;  // 1 / sqrt(variance + eps)
  at::Tensor left;    // (mean - rounded mean) * invstd
  double eps = 0.0;
  double count = 0.0;
  at::Tensor rounded_mean, rounded_variance, rounded_left;  // in the type of BatchNorm's parameters
};

Normaliser make_normaliser(const Moments& moments, double eps, const at::TensorOptions& options);

/// (x − mean) / sqrt(variance + eps) · weight + bias. Weight and bias may be undefined.
at::Tensor normalised(const at::Tensor& inputs, const at::Tensor& weight, const at::Tensor& bias, const Normaliser& by);

/// Σ g and Σ g·x̂ per channel, where g is the gradient at the outputs: also the gradients of bias and weight.
struct OutputSums {
  at::Tensor gradient = {};  // float64 [C]; undefined: of no inputs
  at::Tensor gradient_times_normalised = {};
  void add(const OutputSums& more);
};

OutputSums output_sums(const at::Tensor& gradient, const at::Tensor& inputs, const Normaliser& by);

/// The gradient at the inputs (Ioffe and Szegedy, 2015, section 3), from the sums over everything that shares the
/// statistics.
at::Tensor input_gradient(const at::Tensor& gradient, const at::Tensor& inputs, const at::Tensor& weight,
                          const Normaliser& by, const OutputSums& total);

/// running = (1 − momentum) · running + momentum · statistic, with the variance divided by count − 1, as one batch of
/// all would. Undefined tensors are left out.
void update_running(const at::Tensor& running_mean, const at::Tensor& running_var, const Moments& moments,
                    double momentum);

/// What ranks send each other: float64, for each slot count, mean and squares, or both sums; zeros where a slot has
/// nothing.
struct Packed {
  std::vector<double> counts;  // by slot; of sums there are none
  std::vector<bool> has;       // by slot
  at::Tensor rows;             // where the inputs lie, of all slots that have any; undefined: none has
  std::int64_t channels = 0;

  /// How many numbers a slot has.
  [[nodiscard]] std::size_t width() const { return static_cast<std::size_t>(2 * channels) + (counts.empty() ? 0 : 1); }
  /// Of one slot after the other. A device is asked once, and waited for.
  [[nodiscard]] std::vector<double> read() const;
};

Packed packed(const std::vector<Moments>& slots, std::int64_t channels);
Packed packed(const std::vector<OutputSums>& slots, std::int64_t channels);
/// Of `there`, the same numbers where the inputs lie.
std::vector<Moments> unpacked_moments(const std::vector<double>& numbers, const at::Tensor& there,
                                      std::int64_t channels);
std::vector<OutputSums> unpacked_output_sums(const at::Tensor& there, std::int64_t channels);

}  // namespace onebatch
