// Adam (Kingma and Ba, 2015), with weight decay as a part of the gradient.
#include "trainer/optim/left_out.hpp"
#include "trainer/optim/optimizer_kind.hpp"

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
    count_update(t.state[2], t.left_out);
    at::_fused_adam_(t.parameters, t.gradients, t.state[0], t.state[1], {}, t.state[2], rates.lr, c.betas[0],
                     c.betas[1], rates.weight_decay, c.eps, false, false, {}, optional(t.left_out));
  };
  kind.can_be_left_out = true;
  return kind;
}

}  // namespace onebatch
