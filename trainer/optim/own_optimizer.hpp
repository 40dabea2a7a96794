// A kind of optimizer from the update of one parameter.
#pragma once

#include "trainer/optim/optimizer_kind.hpp"

namespace onebatch {

/// One parameter with what belongs to it: all are updated in place.
struct UpdatedParameter {
  at::Tensor parameter;
  at::Tensor gradient;
  std::vector<at::Tensor> state;
};

/// `state`: names of tensors that each parameter has, of its shape, zero at first and saved in checkpoints.
inline OptimizerKind optimizer_kind(std::string name, const std::vector<std::string>& state,
                                    std::function<void(UpdatedParameter&, const UpdateRates&)> update) {
  OptimizerKind kind;
  kind.name = std::move(name);
  kind.state = [state](const OptimizerConfiguration&) {
    std::vector<OptimizerState> all;
    for (const std::string& one : state) all.push_back({one});
    return all;
  };
  kind.update = [update = std::move(update)](const OptimizerTensors& all, const OptimizerConfiguration&,
                                             const UpdateRates& rates) {
    for (std::size_t i = 0; i < all.parameters.size(); ++i) {
      UpdatedParameter one{all.parameters[i], all.gradients[i], {}};
      for (const std::vector<at::Tensor>& of_each : all.state) one.state.push_back(of_each[i]);
      update(one, rates);
    }
  };
  return kind;
}

}  // namespace onebatch
