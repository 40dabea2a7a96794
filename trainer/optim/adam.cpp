// Adam (Kingma and Ba, 2015), with weight decay as a part of the gradient.
#include "trainer/optim/optimizer_kind.hpp"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_fused_adam.h>

namespace onebatch {

OptimizerKind adam_kind() {
  OptimizerKind kind;
  kind.name = "adam";
  kind.shares = {"betas", "eps"};
  kind.state = [](const OptimizerConfiguration&) {
    return std::vector<OptimizerState>{{"exp_avg"}, {"exp_avg_sq"}, {"step", StateShape::scalar}};
  };
  kind.update = [](const OptimizerTensors& t, const OptimizerConfiguration& c, const UpdateRates& rates) {
    at::_foreach_add_(t.state[2], 1.0);
    at::_fused_adam_(t.parameters, t.gradients, t.state[0], t.state[1], {}, t.state[2], rates.lr, c.betas[0],
                     c.betas[1], rates.weight_decay, c.eps, false, false);
  };
  return kind;
}

}  // namespace onebatch
