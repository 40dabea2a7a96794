// An optimizer of one's own: Lion (Chen et al., 2023, algorithm 2). optimizer.kind = "lion", with AdamW's betas.
#include <onebatch/kinds.hpp>

namespace {

using namespace onebatch;

OptimizerKind lion() {
  OptimizerKind kind;
  kind.name = "lion";
  kind.shares = {"betas"};
  kind.state = [](const OptimizerConfiguration&) { return std::vector<OptimizerState>{{"momentum"}}; };
  kind.update = [](const OptimizerTensors& t, const OptimizerConfiguration& c, const UpdateRates& rates) {
    for (std::size_t i = 0; i < t.parameters.size(); ++i) {
      const at::Tensor& momentum = t.state[0][i];
      const at::Tensor direction = momentum.mul(c.betas[0]).add(t.gradients[i], 1.0 - c.betas[0]).sign();
      t.parameters[i].mul_(1.0 - rates.lr * rates.weight_decay).sub_(direction, rates.lr);
      momentum.mul_(c.betas[1]).add_(t.gradients[i], 1.0 - c.betas[1]);
    }
  };
  return kind;
}

[[maybe_unused]] const bool k_registered = (register_kind(lion()), true);

}  // namespace
