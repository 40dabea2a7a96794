#include "trainer/checkpoint/host_copy.hpp"

#include "trainer/io/tensor_file.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include <map>
#include <set>

namespace onebatch {
namespace {

constexpr std::size_t k_alignment = 64;

std::size_t room_of(const at::Tensor& tensor) {
  return (tensor.nbytes() + k_alignment - 1) / k_alignment * k_alignment;
}

// Copies tensors one behind the other.
class Copier {
 public:
  explicit Copier(std::byte* begin) : next_(begin) {}

  std::vector<SafetensorsView> copy(const std::vector<NamedTensor>& live) {
    std::vector<NamedTensor> copies;
    copies.reserve(live.size());
    for (const auto& [name, tensor] : live) copies.push_back({name, copy_of(tensor)});
    return views_of(copies);
  }

 private:
  at::Tensor copy_of(const at::Tensor& tensor) {
    const auto [found, is_new] = copies_.try_emplace(tensor.unsafeGetTensorImpl());
    if (!is_new) return found->second;
    const at::NoGradGuard no_grad;
    found->second = at::from_blob(next_, tensor.sizes(), at::TensorOptions().dtype(tensor.scalar_type()));
    found->second.copy_(tensor);
    next_ += room_of(tensor);
    return found->second;
  }

  std::byte* next_;
  std::map<const c10::TensorImpl*, at::Tensor> copies_;
};

}  // namespace

std::size_t HostCopy::bytes_needed(const LiveState& live) {
  std::set<const c10::TensorImpl*> counted;
  std::size_t bytes = 0;
  for (const auto* tensors : {&live.model, &live.optimizer, &live.buffers, &live.generators}) {
    for (const auto& [name, tensor] : *tensors) {
      if (counted.insert(tensor.unsafeGetTensorImpl()).second) bytes += room_of(tensor);
    }
  }
  return bytes;
}

CheckpointContents HostCopy::take(RunState state, const LiveState& live) {
  const std::size_t needed = bytes_needed(live);
  if (needed > capacity_) {
    memory_.reset();
    capacity_ = 0;
    memory_ = std::make_unique_for_overwrite<std::byte[]>(needed);
    capacity_ = needed;
  }
  Copier copier(memory_.get());
  CheckpointContents contents;
  contents.state = std::move(state);
  contents.model = copier.copy(live.model);
  contents.optimizer = copier.copy(live.optimizer);
  contents.buffers = copier.copy(live.buffers);
  contents.generators = copier.copy(live.generators);
  return contents;
}

}  // namespace onebatch
