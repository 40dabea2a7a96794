#include "trainer/checkpoint/host_copy.hpp"

#include "trainer/base/transfer.hpp"
#include "trainer/io/tensor_file.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/StreamGuard.h>

#include <map>
#include <set>

namespace onebatch {
namespace {

constexpr std::size_t k_alignment = 64;

std::size_t room_of(const at::Tensor& tensor) {
  return (tensor.nbytes() + k_alignment - 1) / k_alignment * k_alignment;
}

void copy_values(const at::Tensor& from, const at::Tensor& to) {
  const at::NoGradGuard no_grad;
  // Another order of elements is made on the host: the device has no memory to spare for it.
  to.copy_(from.is_cpu() || from.is_contiguous() ? from : from.cpu());
}

// Copies tensors one behind the other.
class Copier {
 public:
  Copier(std::byte* begin, const std::vector<NamedTensor>& still) : next_(begin) {
    for (const auto& [name, tensor] : still) still_.insert(tensor.unsafeGetTensorImpl());
  }

  std::vector<SafetensorsView> copy(const std::vector<NamedTensor>& live) {
    std::vector<NamedTensor> copies;
    copies.reserve(live.size());
    for (const auto& [name, tensor] : live) copies.push_back({name, copy_of(tensor)});
    return views_of(copies);
  }

  std::vector<PendingCopy> pending;

 private:
  at::Tensor copy_of(const at::Tensor& tensor) {
    const auto [found, is_new] = copies_.try_emplace(tensor.unsafeGetTensorImpl());
    if (!is_new) return found->second;
    found->second = at::from_blob(next_, tensor.sizes(), at::TensorOptions().dtype(tensor.scalar_type()));
    next_ += room_of(tensor);
    if (still_.contains(tensor.unsafeGetTensorImpl()))
      pending.push_back({tensor, found->second});
    else
      copy_values(tensor, found->second);
    return found->second;
  }

  std::byte* next_;
  std::set<const c10::TensorImpl*> still_;
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

void finish_copies(const std::vector<PendingCopy>& pending) {
  if (pending.empty()) return;
  std::optional<c10::StreamGuard> beside;
  if (const c10::Device device = pending.front().from.device(); !device.is_cpu())
    beside.emplace(copying_stream(device, Copies::of_checkpoints));
  for (const auto& [from, to] : pending) copy_values(from, to);
}

HostCopy::Taken HostCopy::take(RunState state, const LiveState& live) {
  const std::size_t needed = bytes_needed(live);
  if (needed > capacity_) {
    memory_.reset();
    capacity_ = 0;
    memory_ = std::make_unique_for_overwrite<std::byte[]>(needed);
    capacity_ = needed;
  }
  Copier copier(memory_.get(), live.still);
  CheckpointContents contents;
  contents.state = std::move(state);
  contents.model = copier.copy(live.model);
  contents.optimizer = copier.copy(live.optimizer);
  contents.buffers = copier.copy(live.buffers);
  contents.generators = copier.copy(live.generators);
  return {std::move(contents), std::move(copier.pending)};
}

}  // namespace onebatch
