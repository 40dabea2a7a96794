// AdamW (Loshchilov and Hutter, 2019): Adam whose weight decay is no part of the gradient.
#include "trainer/optim/left_out.hpp"
#include "trainer/optim/optimizer_kind.hpp"
#include "trainer/settings/key_types.hpp"

#include <ATen/ops/_fused_adamw.h>

namespace onebatch {

OptimizerKind adamw_kind() {
  OptimizerKind kind;
  kind.name = "adamw";
  kind.keys = {numbers_key({"betas", Changes::result, "adam, adamw"}, {0.0, 0.9999999}, &OptimizerConfiguration::betas),
               number_key({"eps", Changes::result, "adam, adamw", "1e-8"}, {0.0}, &OptimizerConfiguration::eps)};
  kind.state = [](const OptimizerConfiguration&) {
    return std::vector<OptimizerState>{{"exp_avg"}, {"exp_avg_sq"}, {"step", StateShape::scalar}};
  };
  kind.update = [](const OptimizerTensors& t, const OptimizerConfiguration& c, const UpdateRates& rates) {
    count_update(t.state[2], t.left_out);
    at::_fused_adamw_(t.parameters, t.gradients, t.state[0], t.state[1], {}, t.state[2], rates.lr, c.betas[0],
                      c.betas[1], rates.weight_decay, c.eps, false, false, {}, optional(t.left_out));
  };
  kind.can_be_left_out = true;
  return kind;
}

}  // namespace onebatch
