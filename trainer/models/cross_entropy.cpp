// Cross-entropy of class indices, as PyTorch's.
#include "trainer/models/loss_kind.hpp"

#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>

namespace onebatch {

LossKind cross_entropy_kind() {
  LossKind kind;
  kind.name = "cross_entropy";
  kind.targets = Targets::classes;
  kind.sum = [](const LossTensors& t, const LossConfiguration& c) {
    std::optional<at::Tensor> class_weights;
    if (t.class_weights.defined()) class_weights = t.class_weights;
    const auto reduction = t.weights.defined() ? at::Reduction::None : at::Reduction::Sum;
    const at::Tensor loss =
        at::cross_entropy_loss(t.outputs, t.targets, class_weights, reduction, c.ignore_index, c.label_smoothing);
    return t.weights.defined() ? loss.mul(t.weights).sum() : loss;
  };
  return kind;
}

}  // namespace onebatch
