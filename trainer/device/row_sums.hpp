// Rows that native code of a CPU adds to rows of a sum, as an embedding's gradient: see
// python/onebatch/accumulating.py.
#pragma once

#include <ATen/core/Tensor.h>

namespace onebatch {

/// summed[rows[i]] += values[i] for each i, in their order, so that the bits are the same however many threads there
/// are; 16 columns and fewer are one thread's. Sums of shape [n, ...], contiguous and in host memory, float32 or
/// float64; whole numbers of rows, of any shape, from the end where they are negative; for each a row's values, of the
/// sum's type. Without atomics, which cost more than what is added. Throws c10::Error where something else is given,
/// before any is added.
void add_rows(const at::Tensor& summed, const at::Tensor& rows, const at::Tensor& values);

}  // namespace onebatch
