// Squared errors of numbers, or of class indices as one-hot rows.
#include "trainer/base/error.hpp"
#include "trainer/base/shape_text.hpp"
#include "trainer/models/loss_kind.hpp"

#include <ATen/core/Reduction.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/one_hot.h>
#include <c10/util/accumulate.h>

#include <fmt/format.h>

namespace onebatch {
namespace {

std::string what_would_fit(at::IntArrayRef outputs, at::IntArrayRef targets) {
  if (outputs.size() == 2 && targets.size() == 2)
    return fmt::format("let the model return {0} for each sample (model.num_classes = {0} of an mlp or resnet)",
                       targets[1]);
  return "let the model return that, or save the target so, as y.unsqueeze(1) for one output";
}

at::Tensor squared_error(const LossTensors& t, const LossConfiguration& c) {
  const bool classes = t.targets.scalar_type() == at::kLong;
  const at::Tensor wanted = classes ? at::one_hot(t.targets, t.num_classes).to(t.outputs.scalar_type()) : t.targets;
  // PyTorch would spread [N, 1] against [N] to [N, N].
  if (t.outputs.sizes() != wanted.sizes())
    throw UserError(
        "the model returns " + shape_text(t.outputs.sizes()) + " for targets " + shape_text(wanted.sizes()) +
        (classes ? " (whole numbers are class indices, one-hot; save others as floating-point numbers)" : "") +
        ": mean squared error needs the same shape; " + what_would_fit(t.outputs.sizes(), wanted.sizes()));
  const auto outputs_of_a_sample = static_cast<double>(c10::multiply_integers(t.outputs.sizes().slice(1)));
  // Mean over a sample's outputs, sum over samples: PyTorch's "mean" of the whole batch after the division.
  if (!t.weights.defined()) return at::mse_loss(t.outputs, wanted, at::Reduction::Sum).div(outputs_of_a_sample);
  const at::Tensor each = at::mse_loss(t.outputs, wanted, at::Reduction::None);
  const at::Tensor weighted = (classes ? each.mean(-1) : each).mul(t.weights).sum();
  if (c.normalize_by == NormalizeBy::tokens) return weighted;
  return weighted.div(static_cast<double>(c10::multiply_integers(t.targets.sizes().slice(1))));
}

}  // namespace

LossKind mse_kind() {
  LossKind kind;
  kind.name = "mse";
  kind.targets = Targets::numbers;
  kind.sum = squared_error;
  kind.check = [](const LossConfiguration&, const CheckRequest& request) {
    if (request.chosen("label_smoothing") || request.chosen("class_weights") || request.chosen("ignore_index"))
      request.complain("kind", "\"mse\" takes no label_smoothing, no class_weights and no ignore_index");
  };
  return kind;
}

}  // namespace onebatch
