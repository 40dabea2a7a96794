// Matrix products on a CPU that MKL, LibTorch's library for them, was not made for.
#pragma once

#include <ATen/core/Tensor.h>

namespace onebatch {

/// Whether MKL leaves this processor's widest vectors idle: it takes AVX-512 on Intel's processors alone.
[[nodiscard]] bool mkl_leaves_vectors_idle();

/// A product of two matrices [m, k] and [k, n] that is worth oneDNN's call: float32 on the CPU, of 2^20
/// multiplications.
[[nodiscard]] bool is_large_product(const at::Tensor& left, const at::Tensor& right);

/// From here on aten::mm and aten::addmm have their large products from oneDNN, which LibTorch brings, where MKL is
/// slow here, and native code of the compiler, which asks for its products by other names, has, too; else nothing
/// changes. For the process. Bits differ from MKL's as those of two processors do.
void use_quickest_matrix_products();

}  // namespace onebatch
