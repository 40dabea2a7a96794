#include "trainer/io/named_tensors.hpp"

#include "trainer/io/checksum.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <fmt/format.h>

#include <cstring>
#include <stdexcept>
#include <utility>

namespace onebatch {
namespace {

void add_bits(ChecksumStream& stream, const at::Tensor& tensor) {
  if (tensor.is_cpu() && tensor.is_contiguous())
    return stream.update({static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()});
  const at::Tensor host = tensor.detach().cpu().contiguous();
  stream.update({static_cast<const std::byte*>(host.const_data_ptr()), host.nbytes()});
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
    throw std::invalid_argument(fmt::format("a tensor of {} bytes cannot take {}", tensor.nbytes(), bytes.size()));
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
  for (const auto& [name, tensor] : live_) {
    const bool on_host = tensor.is_cpu();
    bytes_.push_back(on_host ? host_bytes(tensor) : std::vector<std::byte>());
    on_host_.push_back({name, on_host ? tensor : tensor.detach().cpu()});
  }
}

void SavedTensors::restore() const {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < live_.size(); ++i) {
    if (live_[i].tensor.is_cpu())
      copy_from_bytes(live_[i].tensor, bytes_[i]);
    else
      live_[i].tensor.copy_(on_host_[i].tensor);
  }
}

void KeptTensors::keep(const std::vector<NamedTensor>& live) {
  const at::NoGradGuard no_grad;
  for (auto& [type, of_type] : kept_) of_type.live.clear();
  for (const auto& [name, tensor] : live) kept_[tensor.scalar_type()].live.push_back(tensor.detach());
  for (auto& [type, of_type] : kept_) {
    for (std::size_t i = 0; i < of_type.live.size(); ++i) {
      if (i == of_type.copies.size()) of_type.copies.emplace_back();
      if (!of_type.copies[i].defined() || of_type.copies[i].sizes() != of_type.live[i].sizes())
        of_type.copies[i] = at::empty_like(of_type.live[i]);
    }
    of_type.copies.resize(of_type.live.size());
    if (!of_type.live.empty()) at::_foreach_copy_(of_type.copies, of_type.live);
  }
}

void KeptTensors::restore() const {
  const at::NoGradGuard no_grad;
  for (const auto& [type, of_type] : kept_) {
    if (!of_type.live.empty()) at::_foreach_copy_(of_type.live, of_type.copies);
  }
}

Digest digest_of(const std::vector<NamedTensor>& tensors, const std::vector<NamedTensor>& more) {
  ChecksumStream stream;
  for (const auto& [name, tensor] : tensors) {
    stream.update(std::as_bytes(std::span(name)));
    stream.update(std::as_bytes(std::span(tensor.sizes().data(), tensor.sizes().size())));
    add_bits(stream, tensor);
  }
  for (const auto& [name, tensor] : more) add_bits(stream, tensor);
  const Checksum checksum = stream.value();
  return {checksum.high, checksum.low};
}

std::string to_text(const Digest& digest) {
  return to_text(Checksum{digest[0], digest[1]});
}

}  // namespace onebatch
