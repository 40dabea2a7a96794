// Cross-entropy of class indices, as PyTorch's.
#include "trainer/models/class_dim.hpp"
#include "trainer/models/loss_kind.hpp"
#include "trainer/settings/key_types.hpp"

#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>

namespace onebatch {
namespace {

KeyOf<LossConfiguration> class_dim_key() {
  return choice_key(
      {"class_dim", Changes::result,
       "cross entropy, where a sample has several labels: which dimension of the outputs counts the classes, `"
       "\"last\"` as language models return them, [N, positions, classes], or `\"second\"` as PyTorch's cross_entropy "
       "takes them, [N, classes, positions]. `\"auto\"` goes by the shapes, which do not tell where there are as many "
       "classes as positions"},
      {{"auto", "auto"}, {"last", "last"}, {"second", "second"}}, k_class_dim);
}

}  // namespace

LossKind cross_entropy_kind() {
  LossKind kind;
  kind.name = "cross_entropy";
  kind.keys = {class_dim_key()};
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
