// Lists of tensors as what work has made of a replica's state: copied, put back and compared.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace onebatch {

std::vector<at::Tensor> copies_of(const std::vector<at::Tensor>& tensors);
/// Of as many as `to` has.
void copy(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from);

/// Of lists of tensors of the same types and sizes, on one device, which is waited for.
bool has_same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b);
/// The L2 norm of what they differ by, in float64.
double distance(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b);

/// Nothing can be seen from a gradient that is not finite, or was not changed.
bool tells_nothing(const at::Tensor& gradient, const at::Tensor& before);

}  // namespace onebatch
