#include "trainer/io/named_tensors.hpp"

#include "trainer/io/checksum.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace onebatch {
namespace {

constexpr std::size_t k_piece_bytes = std::size_t{16} << 20;

// Takes the bits of tensors, wherever they lie. What lies on a device passes through one piece of host memory.
class BitsReader {
 public:
  void add(ChecksumStream& stream, const at::Tensor& tensor) {
    if (!tensor.is_contiguous()) return add(stream, tensor.detach().cpu().contiguous());
    if (tensor.is_cpu())
      return stream.update({static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()});
    if (!piece_) piece_ = std::make_unique_for_overwrite<std::byte[]>(k_piece_bytes);
    const at::NoGradGuard no_grad;
    const at::Tensor flat = tensor.detach().view(-1);
    const auto most = static_cast<std::int64_t>(k_piece_bytes / tensor.itemsize());
    for (std::int64_t begin = 0; begin < flat.numel(); begin += most) {
      const at::Tensor part = flat.narrow(0, begin, std::min(most, flat.numel() - begin));
      at::from_blob(piece_.get(), part.sizes(), at::TensorOptions().dtype(part.scalar_type())).copy_(part);
      stream.update({piece_.get(), part.nbytes()});
    }
  }

 private:
  std::unique_ptr<std::byte[]> piece_;
};

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
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : tensors) {
    const bool in_place = tensor.is_cpu() && tensor.is_contiguous();
    const at::Tensor host = in_place ? tensor.detach() : tensor.detach().cpu().contiguous();
    control.broadcast(host.mutable_data_ptr(), host.nbytes(), 0);
    if (!in_place && control.rank() != 0) tensor.copy_(host);
  }
}

// A piece of memory each: what else a start has used and given back is of such sizes, and memory that is touched for
// the first time takes longer than the copy.
SavedTensors::SavedTensors(std::vector<NamedTensor> live) : live_(std::move(live)) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : live_) {
    memory_.push_back(std::make_unique_for_overwrite<std::byte[]>(tensor.nbytes()));
    const auto options = at::TensorOptions().dtype(tensor.scalar_type());
    // In the order of its own elements, so that nothing is put into another one on the device.
    const at::Tensor copy = tensor.is_non_overlapping_and_dense()
                                ? at::from_blob(memory_.back().get(), tensor.sizes(), tensor.strides(), options)
                                : at::from_blob(memory_.back().get(), tensor.sizes(), options);
    copies_.push_back({name, copy.copy_(tensor)});
  }
}

void SavedTensors::restore() const {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < live_.size(); ++i) {
    const at::Tensor& live = live_[i].tensor;
    if (live.is_cpu() && live.is_non_overlapping_and_dense() && live.nbytes() > 0)
      std::memcpy(live.mutable_data_ptr(), memory_[i].get(), live.nbytes());  // a graph that has saved it may go on
    else
      live.copy_(copies_[i].tensor);
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
  BitsReader bits;
  for (const auto& [name, tensor] : tensors) {
    stream.update(std::as_bytes(std::span(name)));
    stream.update(std::as_bytes(std::span(tensor.sizes().data(), tensor.sizes().size())));
    bits.add(stream, tensor);
  }
  for (const auto& [name, tensor] : more) bits.add(stream, tensor);
  const Checksum checksum = stream.value();
  return {checksum.high, checksum.low};
}

std::string to_text(const Digest& digest) {
  return to_text(Checksum{digest[0], digest[1]});
}

}  // namespace onebatch
