// A loss of one's own: focal loss (Lin et al., 2017), which counts easy labels less. loss.kind = "focal", loss.gamma
// = 2.0.
#include <onebatch/kinds.hpp>

#include <ATen/ops/log_softmax.h>

namespace {

using namespace onebatch;

const Option<LossConfiguration, double> k_gamma{"gamma", 2.0};

LossKind focal() {
  LossKind kind;
  kind.name = "focal";
  kind.targets = Targets::classes;
  kind.keys = {
      number_key({"gamma", Changes::result, "focal: power of the probability that is missed"}, {1.0, 10.0}, k_gamma)};
  kind.sum = [](const LossTensors& t, const LossConfiguration& loss) {
    const at::Tensor counts = t.targets.ne(loss.ignore_index);
    const at::Tensor labels = t.targets.masked_fill(counts.logical_not(), 0);
    const at::Tensor log_p = at::log_softmax(t.outputs, 1).gather(1, labels.unsqueeze(1)).squeeze(1);
    at::Tensor each = log_p.neg().mul(log_p.exp().neg().add(1.0).pow(k_gamma(loss))).mul(counts);
    if (t.class_weights.defined()) each = each.mul(t.class_weights.index_select(0, labels));
    return t.weights.defined() ? each.mul(t.weights).sum() : each.sum();
  };
  return kind;
}

[[maybe_unused]] const bool k_registered = (register_kind(focal()), true);

}  // namespace
