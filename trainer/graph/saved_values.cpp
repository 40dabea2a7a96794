#include "trainer/graph/saved_values.hpp"

#include "comm/aligned_memory.hpp"

#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/strides.h>

#include <algorithm>
#include <memory>
#include <tuple>

namespace onebatch {
namespace {

// Channels last stays channels last: the model may take a view that needs it.
std::vector<std::int64_t> strides_of_copy(const at::Tensor& tensor) {
  if (tensor.is_non_overlapping_and_dense()) return tensor.strides().vec();
  const auto row_major = c10::contiguous_strides(tensor.sizes());
  return {row_major.begin(), row_major.end()};
}

// Memory of the host that the device's limit does not count.
at::Tensor uncounted_like(const at::Tensor& tensor) {
  const at::TensorOptions options = tensor.options().requires_grad(false);
  const std::vector<std::int64_t> strides = strides_of_copy(tensor);
  auto memory = std::make_shared<comm::AlignedMemory>(std::max<std::size_t>(1, tensor.nbytes()));
  return at::from_blob(
      memory->data(), tensor.sizes(), strides, [memory](void*) {}, options);
}

at::Tensor empty_on(c10::Device device, const at::Tensor& host) {
  return at::empty_strided(host.sizes(), host.strides(), host.options().pinned_memory(false).device(device));
}

}  // namespace

void SavedValues::put(Value value, const at::Tensor& tensor) {
  forget_fetched(value);
  if (place_ == SavedPlace::device) {
    tensors_[value] = tensor.detach();
    return;
  }
  const at::Tensor host = device_.is_cpu() ? uncounted_like(tensor) : pinned_like(tensor);
  going_.emplace_back(host, tensor.detach());
  tensors_[value] = host;
}

at::Tensor SavedValues::get(Value value) {
  const at::Tensor& tensor = tensors_.at(value);
  if (place_ == SavedPlace::device) return tensor;
  const auto is_it = [&](const auto& copy) { return copy.first == value; };
  if (std::ranges::none_of(coming_, is_it)) fetch(value);
  const auto found = std::ranges::find_if(coming_, is_it);
  at::Tensor there = found->second.take();
  coming_.erase(found);
  return there;
}

void SavedValues::fetch(Value value) {
  const auto found = tensors_.find(value);
  if (place_ == SavedPlace::device || found == tensors_.end()) return;
  coming_.emplace_back(std::piecewise_construct, std::forward_as_tuple(value),
                       std::forward_as_tuple(empty_on(device_, found->second), found->second));
}

void SavedValues::erase(Value value) {
  forget_fetched(value);
  tensors_.erase(value);
}

void SavedValues::forget_fetched(Value value) {
  std::erase_if(coming_, [&](const auto& copy) { return copy.first == value; });
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
