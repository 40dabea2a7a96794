// A sum that has the same bits whatever the order and grouping of what is added.
//
// Note [Bitwise]. Every gradient of a kernel call is rounded, on its own, to a multiple of one step that is a power of
// two and the same for a whole parameter on every rank. Sums of such multiples are exact in float64, so they are the
// same in any order, over any ranks. The step follows from the largest element that the parameter's gradient has had on
// any rank: it lies 40 bits below its base, a power of two above that element. A larger element than the base moves the
// base, and the optimizer step is computed again; how bases move depends on nothing but the gradients, so not on the
// plan either. What the sum is divided by, the samples' weights, is made of such multiples as well: WeightSum rounds
// each micro-batch's to 2^-20 and what that leaves to 2^-60, and sums the two apart. (The idea is Demmel and Nguyen's,
// "Parallel reproducible summation", 2015.)
#pragma once

#include "trainer/gradients/bucket.hpp"

#include <ATen/core/Tensor.h>

#include <vector>

namespace onebatch {

class ReproducibleSum {
 public:
  /// How many gradients of one parameter may be added in a step, over all ranks.
  static constexpr std::int64_t k_most_calls = 8192;

  /// float64 numbers that `count` elements of `type` take: for float64 gradients a second number holds what the first
  /// leaves.
  static std::int64_t length(std::int64_t count, at::ScalarType type);

  /// Into `sums`, float64 [length], for parameters that lie at `extents` of [count] elements.
  ReproducibleSum(std::vector<Bucket> extents, at::Tensor sums, std::int64_t count);

  void begin_step();
  /// Adds to the parameter `index`: as many elements as its extent has, in the order in which they lie there.
  void add(std::size_t index, const at::Tensor& gradient);
  /// After the last add(), before the ranks reduce: parameters to which nothing was added are zero.
  void complete();
  /// What is added up: ranks reduce it by SUM.
  [[nodiscard]] const at::Tensor& sums() const { return sums_; }
  /// Per parameter the largest element of this rank in this step: ranks reduce it by MAX.
  [[nodiscard]] std::vector<double> largest() const;
  /// Moves bases by the largest of all ranks. False where one was too low: the step's sums are of no use, and have to
  /// be made again.
  bool follow(const std::vector<double>& largest_of_all);
  /// The sums, divided, into `flat` [count].
  void write_to(const at::Tensor& flat, double divisor) const;

  /// Exponents of two, per parameter; a resumed run goes on with them.
  [[nodiscard]] const std::vector<std::int64_t>& bases() const { return bases_; }
  void set_bases(const std::vector<std::int64_t>& bases);

 private:
  std::vector<Bucket> extents_;
  at::Tensor sums_;
  std::int64_t count_;
  at::Tensor largest_;  // float64 [parameters], on the sums' device
  std::vector<std::int64_t> bases_;
  std::vector<bool> added_;  // in this step; before that a parameter's sum is of an earlier one
};

}  // namespace onebatch
