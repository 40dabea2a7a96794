#include "trainer/graph/saved_values.hpp"

#include "comm/aligned_memory.hpp"
#include "trainer/base/transfer.hpp"

#include <ATen/ops/from_blob.h>
#include <c10/util/strides.h>

#include <memory>

namespace onebatch {
namespace {

// Channels last stays channels last: the model may take a view that needs it.
std::vector<std::int64_t> strides_of_copy(const at::Tensor& tensor) {
  if (tensor.is_non_overlapping_and_dense()) return tensor.strides().vec();
  const auto row_major = c10::contiguous_strides(tensor.sizes());
  return {row_major.begin(), row_major.end()};
}

at::Tensor host_copy(const at::Tensor& tensor) {
  if (tensor.is_cuda()) return pinned_like(tensor).copy_(tensor.detach(), /*non_blocking=*/true);
  const at::TensorOptions options = tensor.options().device(c10::kCPU).requires_grad(false);
  const std::vector<std::int64_t> strides = strides_of_copy(tensor);
  auto memory = std::make_shared<comm::AlignedMemory>(std::max<std::size_t>(1, tensor.nbytes()));
  at::Tensor copy = at::from_blob(
      memory->data(), tensor.sizes(), strides, [memory](void*) {}, options);
  return copy.copy_(tensor.detach());
}

}  // namespace

void SavedValues::put(Value value, const at::Tensor& tensor) {
  tensors_[value] = place_ == SavedPlace::host ? host_copy(tensor) : tensor.detach();
}

at::Tensor SavedValues::get(Value value) const {
  const at::Tensor& tensor = tensors_.at(value);
  if (place_ == SavedPlace::device) return tensor;
  return tensor.to(device_, tensor.scalar_type(), /*non_blocking=*/true, /*copy=*/true);
}

void SavedValues::add(Value value, const at::Tensor& tensor) {
  put(value, has(value) ? get(value).add(tensor) : tensor);
}

std::size_t SavedValues::bytes() const {
  std::size_t sum = 0;
  for (const auto& [value, tensor] : tensors_) sum += tensor.nbytes();
  return sum;
}

at::Tensor SavedValues::take(Value value) {
  const at::Tensor tensor = get(value);
  erase(value);
  return tensor;
}

}  // namespace onebatch
