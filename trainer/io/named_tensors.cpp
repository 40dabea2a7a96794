#include "trainer/io/named_tensors.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace onebatch {
namespace {

void update(XXH3_state_t& state, const void* data, std::size_t bytes) {
  XXH3_128bits_update(&state, data, bytes);
}

void update_with_bits(XXH3_state_t& state, const at::Tensor& tensor) {
  if (tensor.is_cpu() && tensor.is_contiguous()) return update(state, tensor.const_data_ptr(), tensor.nbytes());
  const auto bytes = host_bytes(tensor);
  update(state, bytes.data(), bytes.size());
}

void update(XXH3_state_t& state, const std::vector<NamedTensor>& tensors) {
  for (const auto& [name, tensor] : tensors) {
    update(state, name.data(), name.size());
    update(state, tensor.sizes().data(), tensor.sizes().size() * sizeof(std::int64_t));
    update_with_bits(state, tensor);
  }
}

}  // namespace

std::vector<NamedTensor> copies_of(const std::vector<NamedTensor>& tensors) {
  std::vector<NamedTensor> copies;
  for (const auto& [name, tensor] : tensors) copies.push_back({name, tensor.detach().clone()});
  return copies;
}

std::vector<std::byte> host_bytes(const at::Tensor& tensor) {
  const at::Tensor host = tensor.detach().cpu().contiguous();
  std::vector<std::byte> bytes(host.nbytes());
  if (!bytes.empty()) std::memcpy(bytes.data(), host.const_data_ptr(), bytes.size());
  return bytes;
}

void copy_from_bytes(const at::Tensor& tensor, std::span<const std::byte> bytes) {
  if (bytes.size() != tensor.nbytes())
    throw std::invalid_argument("a tensor of " + std::to_string(tensor.nbytes()) + " bytes cannot take " + std::to_string(bytes.size()));
  if (bytes.empty()) return;
  const at::NoGradGuard no_grad;
  if (tensor.is_cpu() && tensor.is_contiguous()) {
    std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
    return;
  }
  const at::Tensor host = at::empty(tensor.sizes(), tensor.options().device(at::kCPU).requires_grad(false));
  std::memcpy(host.mutable_data_ptr(), bytes.data(), bytes.size());
  tensor.copy_(host);
}

void broadcast_tensors(const std::vector<NamedTensor>& tensors, comm::Communicator& control) {
  if (control.size() == 1) return;
  for (const auto& [name, tensor] : tensors) {
    auto bytes = host_bytes(tensor);
    control.broadcast(bytes.data(), bytes.size(), 0);
    copy_from_bytes(tensor, bytes);
  }
}

SavedTensors::SavedTensors(std::vector<NamedTensor> live) : live_(std::move(live)) {
  for (const auto& [name, tensor] : live_) bytes_.push_back(host_bytes(tensor));
}

void SavedTensors::restore() const {
  for (std::size_t i = 0; i < live_.size(); ++i) copy_from_bytes(live_[i].tensor, bytes_[i]);
}

Digest digest_of(const std::vector<NamedTensor>& tensors, const std::vector<NamedTensor>& more) {
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  update(state, tensors);
  for (const auto& [name, tensor] : more) update_with_bits(state, tensor);
  const XXH128_hash_t hash = XXH3_128bits_digest(&state);
  return {hash.high64, hash.low64};
}

std::string to_text(const Digest& digest) {
  std::array<char, 33> text{};
  std::snprintf(text.data(), text.size(), "%016llx%016llx", static_cast<unsigned long long>(digest[0]),
                static_cast<unsigned long long>(digest[1]));
  return text.data();
}

}  // namespace onebatch
