// A kind of model from any torch::nn::Module.
#pragma once

#include "trainer/models/callable_module.hpp"
#include "trainer/models/model_kind.hpp"

namespace onebatch {

/// `make`: on the CPU, a module that does not depend on what was made before; a request tells the data's shapes. Called
/// several times in a run.
ModelKind module_kind(std::string name, std::function<CallableModule(const ModelRequest&)> make);

/// Throws UserError, which begins with `named`, where there is no module, or one that is not trainable as it is.
std::unique_ptr<Model> wrap_module(CallableModule made, const ModelRequest& request, const std::string& named);

}  // namespace onebatch
