#include "trainer/replica/replica_state.hpp"

#include "trainer/device/generators.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <stdexcept>

namespace onebatch {
namespace {

std::string in_state(const std::string& name) {
  return "optimizer." + name;
}

bool is_zero(std::span<const std::byte> bytes) {
  constexpr std::size_t k_block_bytes = 4096;
  static constexpr std::array<std::byte, k_block_bytes> k_zeros{};
  for (std::size_t begin = 0; begin < bytes.size(); begin += k_block_bytes) {
    const auto block = bytes.subspan(begin, std::min(k_block_bytes, bytes.size() - begin));
    if (std::memcmp(block.data(), k_zeros.data(), block.size()) != 0) return false;
  }
  return true;
}

// Those of the optimizer's state without a bit, by their names in live_tensors(). On a device they are looked at there,
// and told in one transfer.
std::map<std::string, at::Tensor> zeros_among(const std::vector<NamedTensor>& tensors) {
  std::map<std::string, at::Tensor> zeros;
  std::vector<NamedTensor> on_device;
  std::vector<at::Tensor> have_bits;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.is_non_overlapping_and_dense()) continue;
    if (!tensor.is_cpu()) {
      on_device.push_back({name, tensor});
      have_bits.push_back(tensor.detach().as_strided({tensor.numel()}, {1}).view(at::kByte).any().to(at::kBool));
    } else if (is_zero({static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()})) {
      zeros.emplace(in_state(name), tensor);
    }
  }
  if (on_device.empty()) return zeros;
  const at::Tensor told = at::stack(have_bits).cpu();
  for (std::size_t i = 0; i < on_device.size(); ++i) {
    if (!told.const_data_ptr<bool>()[i]) zeros.emplace(in_state(on_device[i].name), on_device[i].tensor);
  }
  return zeros;
}

std::vector<NamedTensor> without(const std::map<std::string, at::Tensor>& some, std::vector<NamedTensor> tensors) {
  std::erase_if(tensors, [&](const NamedTensor& one) { return some.contains(one.name); });
  return tensors;
}

}  // namespace

std::vector<NamedTensor> live_tensors(const Replica& replica) {
  std::vector<NamedTensor> live;
  for (const auto& [name, tensor] : state_of(*replica.model)) live.push_back({"model." + name, tensor});
  for (const auto& [name, tensor] : replica.optimizer.state()) live.push_back({in_state(name), tensor});
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
    : zeros_(zeros_among(replica.optimizer.state())),
      others_(without(zeros_, live_tensors(replica))),
      generators_(replica),
      loss_scale_(replica.loss_scale) {
  digest_ = digest_of(others_.copies(), generator_states(replica.device.device()));
  if (const ReproducibleSum* sum = replica.gradients.reproducible()) bases_ = sum->bases();
}

void ReplicaSnapshot::restore(Replica& replica) const {
  others_.restore();
  {
    const at::NoGradGuard no_grad;
    for (const auto& [name, tensor] : zeros_) tensor.zero_();
  }
  replica.loss_scale = loss_scale_;
  if (ReproducibleSum* sum = replica.gradients.reproducible()) sum->set_bases(bases_);
  generators_.restore(replica);
  replica.gradients.begin_step();
  if (!is_as_it_was(replica))
    throw std::logic_error("the state of the replica is not what it was before it was borrowed");
}

bool ReplicaSnapshot::is_as_it_was(const Replica& replica) const {
  const std::vector<NamedTensor> live = live_tensors(replica);
  const std::vector<NamedTensor> others = without(zeros_, live);
  return others.size() + zeros_.size() == live.size() &&
         zeros_among(replica.optimizer.state()).size() == zeros_.size() &&
         digest_of(others, generator_states(replica.device.device())) == digest_;
}

std::shared_ptr<const ReplicaSnapshot> kept_state(Replica& replica) {
  auto kept = replica.kept.lock();
  if (!kept) replica.kept = kept = std::make_shared<const ReplicaSnapshot>(replica);
  return kept;
}

}  // namespace onebatch
