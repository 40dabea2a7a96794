// All that a replica carries from one step to the next: to save, to put back, to compare.
#pragma once

#include "trainer/replica/replica.hpp"

#include <map>
#include <string>

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
  /// Throws std::logic_error where its bits afterwards are not those before.
  void restore(Replica& replica) const;

 private:
  [[nodiscard]] bool is_as_it_was(const Replica& replica) const;

  std::map<std::string, at::Tensor> zeros_;  // of the optimizer's state, most of which is that before the first step
  SavedTensors others_;
  GeneratorState generators_;
  LossScale loss_scale_;
  std::vector<std::int64_t> bases_;
  Digest digest_;  // of the others
};

/// The state as it is now, or, while somebody holds that, the one that was kept before: who borrows the replica within
/// another's borrowing finds it as it was then, and puts it back. A copy of a large model takes seconds.
std::shared_ptr<const ReplicaSnapshot> kept_state(Replica& replica);

}  // namespace onebatch
