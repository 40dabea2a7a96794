// The loss that a model from Python or of a plugin computes itself: its forward returns the sum and its weight.
#include "trainer/models/loss_kind.hpp"

namespace onebatch {

LossKind models_own_loss_kind() {
  LossKind kind;
  kind.name = "model";
  kind.targets = Targets::none;
  kind.check = [](const LossConfiguration&, const CheckRequest& request) {
    for (const char* key : {"label_smoothing", "class_weights", "ignore_index", "normalize_by"}) {
      if (!request.chosen(key)) continue;
      request.complain("kind", "\"model\" takes no other key of [loss]: the model computes its loss and its weight");
      break;
    }
    const std::string& model = request.configuration.model.kind;
    if (model == "mlp" || model == "resnet")
      request.complain("kind",
                       "\"model\" belongs to model.kind = \"torchscript\", \"exported\" or \"plugin\": its forward "
                       "returns the loss's sum and its weight");
  };
  return kind;
}

}  // namespace onebatch
