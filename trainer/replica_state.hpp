// All that a replica carries from one step to the next, as bytes: to save, to put back, to compare.
#pragma once

#include "comm/communicator.hpp"
#include "trainer/replica.hpp"

#include <array>
#include <cstddef>

namespace onebatch {

/// Parameters and buffers, as PyTorch's state_dict has them.
std::vector<NamedTensor> state_of(const Model& model);

/// Parameters, buffers and optimizer state: live tensors, names prefixed with "model." and "optimizer.".
std::vector<NamedTensor> live_tensors(const Replica& replica);

/// Clones under the same names, without a graph.
std::vector<NamedTensor> copies_of(const std::vector<NamedTensor>& tensors);

/// A tensor's bytes in host memory that is not counted against the device.
std::vector<std::byte> host_bytes(const at::Tensor& tensor);
/// Throws std::invalid_argument where the sizes differ.
void copy_from_bytes(const at::Tensor& tensor, std::span<const std::byte> bytes);

/// Rank 0's bytes in everyone's tensors. Collective.
void broadcast_tensors(const std::vector<NamedTensor>& tensors, comm::Communicator& control);

/// Live tensors with the bytes that they have now.
class SavedTensors {
 public:
  explicit SavedTensors(std::vector<NamedTensor> live);
  /// Puts the bytes back.
  void restore() const;

 private:
  std::vector<NamedTensor> live_;
  std::vector<std::vector<std::byte>> bytes_;
};

/// The states of the random generators that a replica's forward may draw from.
class GeneratorState {
 public:
  explicit GeneratorState(const Replica& replica);
  void restore(const Replica& replica) const;

 private:
  std::vector<std::vector<std::byte>> bytes_;
};

/// XXH3 over names, shapes and bits of the live tensors and over the states of the random generators.
using Digest = std::array<std::uint64_t, 2>;
Digest digest_of(const Replica& replica);
/// Over names, shapes and bits of these tensors alone.
Digest digest_of(const std::vector<NamedTensor>& tensors);
std::string to_text(const Digest& digest);

/// Holds the state as it was; `restore` puts it back bit for bit, the generators included. See Note [A probe leaves nothing behind].
class ReplicaSnapshot {
 public:
  explicit ReplicaSnapshot(Replica& replica);
  /// Throws std::logic_error where the digest afterwards is not the digest before.
  void restore(Replica& replica) const;

 private:
  SavedTensors tensors_;
  GeneratorState generators_;
  LossScale loss_scale_;
  std::vector<std::int64_t> bases_;
  Digest digest_;
};

}  // namespace onebatch
