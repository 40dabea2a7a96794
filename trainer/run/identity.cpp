// What makes a run the run that it is: no checkpoint of another is gone on from.
#include "trainer/base/formatted.hpp"
#include "trainer/run/loop.hpp"

namespace onebatch {

std::map<std::string, std::string> run_identity(const Configuration& configuration, const Dataset& data) {
  const ModelConfiguration& model = configuration.model;
  std::map<std::string, std::string> identity = {
      {"run.seed", std::to_string(configuration.run.seed)},
      {"data.size", std::to_string(data.size())},
      {"data.shape", shape_text(data.sample_shape())},
      {"model.kind", model.kind == ModelKind::mlp ? "mlp" : (model.kind == ModelKind::resnet ? "resnet" : "torchscript")},
      {"optimizer.kind", std::to_string(static_cast<int>(configuration.optimizer.kind))},
      {"precision.parameters", c10::toString(scalar_type(configuration.precision.parameters))},
  };
  if (model.kind == ModelKind::mlp) {
    identity["model.hidden"] = shape_text(model.hidden);
    identity["model.dropout"] = std::to_string(model.dropout);
  } else if (model.kind == ModelKind::resnet) {
    identity["model.depth"] = std::to_string(model.depth);
    identity["model.stem"] = model.stem == ResNetStem::cifar ? "cifar" : "imagenet";
  }
  return identity;
}

}  // namespace onebatch
