// Tensors by name, and their bytes: to save, to send, to put back, to compare.
#pragma once

#include "comm/communicator.hpp"

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace onebatch {

struct NamedTensor {
  std::string name;  // as in PyTorch's state_dict: "layer1.0.conv1.weight"
  at::Tensor tensor;
};

/// Clones under the same names, without a graph.
std::vector<NamedTensor> copies_of(const std::vector<NamedTensor>& tensors);

/// A tensor's bytes in host memory that is not counted against the device.
std::vector<std::byte> host_bytes(const at::Tensor& tensor);
/// Throws std::invalid_argument where the sizes differ.
void copy_from_bytes(const at::Tensor& tensor, std::span<const std::byte> bytes);

/// Rank 0's bytes in everyone's tensors. Collective.
void broadcast_tensors(const std::vector<NamedTensor>& tensors, comm::Communicator& control);

/// Live tensors with the bytes that they have now, in host memory that is not counted against the device.
class SavedTensors {
 public:
  explicit SavedTensors(std::vector<NamedTensor> live);
  /// Puts the bytes back.
  void restore() const;
  /// Under the same names.
  [[nodiscard]] const std::vector<NamedTensor>& copies() const { return copies_; }

 private:
  std::vector<NamedTensor> live_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;  // in which the copies lie
  std::vector<NamedTensor> copies_;
};

/// Copies where the tensors lie, in memory that is taken once.
class KeptTensors {
 public:
  void keep(const std::vector<NamedTensor>& live);
  /// Puts what was kept last back.
  void restore() const;

 private:
  struct OfOneType {
    std::vector<at::Tensor> live;
    std::vector<at::Tensor> copies;
  };
  std::map<at::ScalarType, OfOneType> kept_;
};

using Digest = std::array<std::uint64_t, 2>;
/// XXH3 over names, shapes and bits of `tensors`, then over the bits of `more` alone.
Digest digest_of(const std::vector<NamedTensor>& tensors, const std::vector<NamedTensor>& more = {});
std::string to_text(const Digest& digest);

}  // namespace onebatch
