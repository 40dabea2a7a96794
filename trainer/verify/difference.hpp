// How far two gradients are apart. What is no number is as far apart as can be.
#pragma once

#include "trainer/models/model.hpp"

#include <functional>

namespace onebatch {

/// Of the whole gradient, in fp64 on the CPU, by parameter. A complex one's parts are two numbers.
using Gradient = std::vector<NamedTensor>;

struct Difference {
  double relative_l2 = 0.0;  // NaN where either side holds NaN or infinity
  double max_abs = 0.0;
};

/// `error` over `norm`; NaN where either is not finite, infinity where only the norm is zero.
double ratio(double error, double norm);
/// Of two numbers: relative to what was expected, 0 where both are the same infinity.
double apart(double ours, double expected);
Difference difference_of(const at::Tensor& ours, const at::Tensor& reference);
/// Over all parameters together. Throws std::logic_error where they are not the same parameters.
Difference difference_of(const Gradient& ours, const Gradient& reference);
double norm_of(const Gradient& gradient);

/// False also for NaN.
inline bool is_within(double error, double tolerance) {
  return error <= tolerance;
}

/// Any tensor's numbers: dense, a complex one's parts beside each other. Its own memory where it can be.
at::Tensor numbers_in(const at::Tensor& tensor);
/// A copy of them, as fp64 on the CPU.
at::Tensor as_numbers(const at::Tensor& tensor);

/// Of so many elements one part after the other: what is made of one takes little memory, however large a layer is.
void for_each_part(std::int64_t elements, const std::function<void(std::int64_t begin, std::int64_t length)>& work);

/// By what a number of this type is rounded at most, relative.
double unit_roundoff(at::ScalarType type);
constexpr double k_float32_roundoff = 0x1p-24;

}  // namespace onebatch
