// All that a replica carries from one step to the next: to save, to put back, to compare.
#pragma once

#include "trainer/replica/replica.hpp"

namespace onebatch {

/// Parameters, buffers and optimizer state: live tensors, names prefixed with "model." and "optimizer.".
std::vector<NamedTensor> live_tensors(const Replica& replica);

/// The states of the random generators that a replica's forward may draw from.
class GeneratorState {
 public:
  explicit GeneratorState(const Replica& replica);
  void restore(const Replica& replica) const;

 private:
  std::vector<std::vector<std::byte>> bytes_;
};

/// Over names, shapes and bits of the live tensors and over the states of the random generators.
Digest digest_of(const Replica& replica);

/// Holds the state as it was; `restore` puts it back bit for bit, the generators included. See Note [A probe leaves
/// nothing behind].
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
