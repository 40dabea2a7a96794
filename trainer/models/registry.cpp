// From the configuration to a model.
#include "trainer/base/error.hpp"
#include "trainer/base/formatted.hpp"
#include "trainer/models/layout.hpp"
#include "trainer/models/trainable_module.hpp"

#include <ATen/Context.h>

#include <functional>
#include <numeric>

namespace onebatch {
namespace {

std::int64_t classes_of(const ModelRequest& request) {
  const std::int64_t asked = request.configuration.num_classes;
  if (asked != 0 && asked < request.num_classes) {
    throw UserError("model.num_classes = " + std::to_string(asked) + ", but the data has " + std::to_string(request.num_classes) +
                    " classes: write model.num_classes = " + std::to_string(request.num_classes) + " or leave it out");
  }
  return asked != 0 ? asked : request.num_classes;
}

std::shared_ptr<TrainableModule> make_module(const ModelRequest& request) {
  const auto& shape = request.sample_shape;
  switch (request.configuration.kind) {
    case ModelKind::mlp:
      return make_mlp(request.configuration, std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()),
                      classes_of(request));
    case ModelKind::torchscript: break;
    case ModelKind::resnet:
      if (shape.size() != 3)
        throw UserError("model.kind = \"resnet\" takes images [C, H, W], but a sample of the data is " + shape_text(shape) +
                        ": use model.kind = \"mlp\"");
      return make_resnet(request.configuration, shape[0], classes_of(request));
  }
  throw UserError("model.kind is not one that this program knows");
}

}  // namespace

std::vector<NamedTensor> Model::state_dict() const {
  return state_of(*this);
}

std::vector<NamedTensor> state_of(const Model& model) {
  auto tensors = model.parameters();
  for (auto& buffer : model.buffers()) tensors.push_back(std::move(buffer));
  return tensors;
}

std::unique_ptr<Model> make_model(const ModelRequest& request) {
  at::manual_seed(request.seed);
  auto model = request.configuration.kind == ModelKind::torchscript
                   ? load_torchscript({request.configuration.path, request.freeze_batch_norm, request.returns_loss})
                   : wrap_module(make_module(request), request.freeze_batch_norm);
  check_savable(*model);
  give_dense_memory(*model);
  if (!request.configuration.weights.empty()) load_weights(*model, request.configuration.weights);
  return model;
}

}  // namespace onebatch
