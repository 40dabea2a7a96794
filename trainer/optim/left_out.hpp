// What kinds of optimizers need to leave an update out by a number on the device: see OptimizerTensors::left_out.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/rsub.h>

#include <optional>

namespace onebatch {

inline std::optional<at::Tensor> optional(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

/// One more of each of `steps` (float32 scalars), or none more.
inline void count_update(const std::vector<at::Tensor>& steps, const at::Tensor& left_out) {
  if (left_out.defined())
    at::_foreach_add_(steps, at::rsub(left_out, 1.0));
  else
    at::_foreach_add_(steps, 1.0);
}

}  // namespace onebatch
