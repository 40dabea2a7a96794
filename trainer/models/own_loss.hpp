// A kind of loss from its sum alone.
#pragma once

#include "trainer/models/loss_kind.hpp"

namespace onebatch {

/// `sum`: as LossKind::sum, of a loss that has no keys of its own.
inline LossKind loss_kind(std::string name, Targets targets, std::function<at::Tensor(const LossTensors&)> sum) {
  LossKind kind;
  kind.name = std::move(name);
  kind.targets = targets;
  kind.sum = [sum = std::move(sum)](const LossTensors& tensors, const LossConfiguration&) { return sum(tensors); };
  return kind;
}

}  // namespace onebatch
