#include "trainer/replica/replica_state.hpp"

#include "trainer/device/generators.hpp"

#include <stdexcept>

namespace onebatch {
std::vector<NamedTensor> live_tensors(const Replica& replica) {
  std::vector<NamedTensor> live;
  for (const auto& [name, tensor] : state_of(*replica.model)) live.push_back({"model." + name, tensor});
  for (const auto& [name, tensor] : replica.optimizer.state()) live.push_back({"optimizer." + name, tensor});
  return live;
}

Digest digest_of(const Replica& replica) {
  return digest_of(live_tensors(replica), generator_states(replica.device.device()));
}

GeneratorState::GeneratorState(const Replica& replica) {
  for (const auto& [name, tensor] : generator_states(replica.device.device())) bytes_.push_back(host_bytes(tensor));
}

void GeneratorState::restore(const Replica& replica) const {
  const auto states = generator_states(replica.device.device());
  for (std::size_t i = 0; i < states.size(); ++i) copy_from_bytes(states[i].tensor, bytes_[i]);
  set_generator_states(replica.device.device(), states);
}

ReplicaSnapshot::ReplicaSnapshot(Replica& replica)
    : tensors_(live_tensors(replica)), generators_(replica), loss_scale_(replica.loss_scale) {
  digest_ = digest_of(tensors_.on_host(), generator_states(replica.device.device()));
  if (const ReproducibleSum* sum = replica.gradients.reproducible()) bases_ = sum->bases();
}

void ReplicaSnapshot::restore(Replica& replica) const {
  tensors_.restore();
  replica.loss_scale = loss_scale_;
  if (ReproducibleSum* sum = replica.gradients.reproducible()) sum->set_bases(bases_);
  generators_.restore(replica);
  replica.gradients.begin_step();
  if (digest_of(replica) != digest_)
    throw std::logic_error("the state of the replica is not what it was before it was borrowed");
}

}  // namespace onebatch
