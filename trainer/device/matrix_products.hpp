// Matrix products on a CPU that MKL, LibTorch's library for them, was not made for.
#pragma once

#include <ATen/core/Tensor.h>

#include <unordered_set>

namespace onebatch {

/// Whether MKL leaves this processor's widest vectors idle: it takes AVX-512 on Intel's processors alone.
[[nodiscard]] bool mkl_leaves_vectors_idle();

/// A product of two matrices [m, k] and [k, n] that is worth oneDNN's call: float32 on the CPU, of 2^20
/// multiplications.
[[nodiscard]] bool is_large_product(const at::Tensor& left, const at::Tensor& right);

/// Sums that native code is the first to write to: while this lives, the first product that it adds to one of them on
/// this thread takes the place of what is there.
class UnwrittenSums {
 public:
  /// Where they lie.
  explicit UnwrittenSums(std::unordered_set<const void*> sums);
  ~UnwrittenSums();
  UnwrittenSums(const UnwrittenSums&) = delete;
  UnwrittenSums& operator=(const UnwrittenSums&) = delete;

  [[nodiscard]] bool all_are_written() const { return sums_.empty(); }
  /// Whether it is one of those of this thread, and unwritten. From here on it is written.
  static bool take(const at::Tensor& sum);

 private:
  std::unordered_set<const void*> sums_;
  UnwrittenSums* before_;
};

/// From here on aten::mm and aten::addmm have their large products from oneDNN, which LibTorch brings, where MKL is
/// slow here, and native code of the compiler, which asks for its products by other names, has, too; else nothing
/// changes. For the process. Bits differ from MKL's as those of two processors do.
void use_quickest_matrix_products();

}  // namespace onebatch
