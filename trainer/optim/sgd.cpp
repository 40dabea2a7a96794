// Stochastic gradient descent, with momentum or Nesterov's.
#include "trainer/optim/left_out.hpp"
#include "trainer/optim/optimizer_kind.hpp"
#include "trainer/settings/key_types.hpp"

#include <ATen/ops/_fused_sgd.h>

namespace onebatch {

OptimizerKind sgd_kind() {
  OptimizerKind kind;
  kind.name = "sgd";
  kind.keys = {
      number_key({"momentum", Changes::result | Changes::probe, "sgd"}, {0.0, 1.0}, &OptimizerConfiguration::momentum),
      boolean_key({"nesterov", Changes::result, "sgd"}, &OptimizerConfiguration::nesterov)};
  kind.check = [](const OptimizerConfiguration& optimizer, const CheckRequest& request) {
    if (optimizer.nesterov && optimizer.momentum == 0.0)
      request.complain("nesterov", "needs optimizer.momentum above 0");
  };
  kind.state = [](const OptimizerConfiguration& c) {
    return c.momentum != 0.0 ? std::vector<OptimizerState>{{"momentum_buffer"}} : std::vector<OptimizerState>{};
  };
  kind.update = [](const OptimizerTensors& t, const OptimizerConfiguration& c, const UpdateRates& rates) {
    // With a buffer of zeros the first step is no special case: momentum * 0 + gradient.
    const std::vector<at::Tensor> none;
    at::_fused_sgd_(t.parameters, t.gradients, t.state.empty() ? none : t.state[0], rates.weight_decay, c.momentum,
                    rates.lr,
                    /*dampening=*/0.0, c.nesterov, false, /*is_first_step=*/false, {}, optional(t.left_out));
  };
  kind.can_be_left_out = true;
  return kind;
}

}  // namespace onebatch
