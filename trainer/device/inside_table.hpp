// Whether numbers of the data are rows of the table that native code looks them up in: see python/onebatch/indices.py.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace onebatch {

/// A copy of `indices`, whole numbers in host memory. Throws c10::IndexError, and tells NativeFailure, where one is not
/// from `least` to before `end`.
at::Tensor inside_table(const at::Tensor& indices, std::int64_t least, std::int64_t end);

}  // namespace onebatch
