// From the configuration to a model.
#include "trainer/base/error.hpp"
#include "trainer/models/layer_calls.hpp"
#include "trainer/models/layout.hpp"
#include "trainer/models/model_kind.hpp"
#include "trainer/models/start_weights.hpp"

#include <ATen/Context.h>
#include <fmt/format.h>

namespace onebatch {

std::int64_t classes_of(const ModelRequest& request) {
  const std::int64_t asked = request.configuration.num_classes;
  if (asked != 0 && asked < request.num_classes) {
    throw UserError(
        fmt::format("model.num_classes = {}, but the data has {} classes: write model.num_classes = {} or leave it out",
                    asked, request.num_classes, request.num_classes));
  }
  return asked != 0 ? asked : request.num_classes;
}

std::int64_t outputs_of(const ModelRequest& request) {
  const std::int64_t outputs = classes_of(request);
  if (outputs == 0)
    throw UserError(
        "model.num_classes = 0 is as many as the data has classes, and it has none: write how many numbers the model "
        "returns for a sample, as model.num_classes = 1 for targets [N, 1]");
  return outputs;
}

std::string model_notice(const ModelConfiguration& model) {
  const auto& notice = chosen_kind<ModelKind>(model).notice;
  return notice ? notice(model) : "";
}

std::vector<NamedTensor> Model::state_dict() const {
  return state_of(*this);
}

std::optional<std::vector<LayerCall>> Model::layer_calls() const {
  return std::nullopt;
}

std::vector<NamedTensor> state_of(const Model& model) {
  auto tensors = model.parameters();
  for (auto& buffer : model.buffers()) tensors.push_back(std::move(buffer));
  return tensors;
}

std::unique_ptr<Model> make_model(const ModelRequest& request) {
  at::manual_seed(request.seed);
  auto model = chosen_kind<ModelKind>(request.configuration).make(request);
  check_savable(*model);
  give_dense_memory(*model);
  start_weights(*model, request.configuration, request.seed);
  return model;
}

}  // namespace onebatch
