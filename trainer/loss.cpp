#include "trainer/loss.hpp"

#include "trainer/error.hpp"
#include "trainer/formatted.hpp"

#include <ATen/core/Reduction.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/tensor.h>

#include <utility>

namespace onebatch {
namespace {

// Outputs [labels, classes] and labels [labels].
std::pair<at::Tensor, at::Tensor> by_label(const at::Tensor& outputs, const at::Tensor& targets, std::int64_t num_classes) {
  const auto sizes = outputs.sizes();
  at::Tensor rows;
  if (outputs.dim() == targets.dim() + 1 && sizes.slice(0, static_cast<std::size_t>(targets.dim())) == targets.sizes())
    rows = targets.dim() == 1 ? outputs : outputs.flatten(0, -2);
  else if (outputs.dim() == targets.dim() + 1 && targets.dim() > 1 && sizes[0] == targets.size(0) &&
           sizes.slice(2) == targets.sizes().slice(1))
    rows = outputs.movedim(1, -1).flatten(0, -2);
  else if (outputs.dim() == 2 && sizes[0] == targets.numel())
    rows = outputs;
  else
    throw UserError("the model returns " + shape_text(outputs.sizes()) + " for targets " + shape_text(targets.sizes()) +
                    ": cross-entropy needs outputs of the targets' shape with the classes last (or second)");
  if (rows.size(1) < num_classes)
    throw UserError("the model returns " + std::to_string(rows.size(1)) + " outputs per label, but there are " +
                    std::to_string(num_classes) + " classes: use a model of more outputs, or mend the data's labels");
  return {rows, targets.dim() == 1 ? targets : targets.flatten()};
}

}  // namespace

Loss::Loss(const LossConfiguration& configuration, std::int64_t num_classes) : configuration_(configuration), num_classes_(num_classes) {
  const auto given = static_cast<std::int64_t>(configuration_.class_weights.size());
  if (given != 0 && given != num_classes) {
    throw UserError("loss.class_weights has " + std::to_string(given) + " weights, but there are " + std::to_string(num_classes) +
                    " classes: write one per class");
  }
  if (given != 0) class_weights_ = at::tensor(configuration.class_weights, at::kDouble);
}

std::vector<NamedTensor> Loss::constants() const {
  if (!class_weights_.defined()) return {};
  return {{"loss.class_weights", class_weights_}};
}

double Loss::weight(const at::Tensor& targets, const at::Tensor& weights) const {
  if (is_classification()) return classification_weight(targets, weights);
  if (weights.defined() && configuration_.normalize_by == NormalizeBy::tokens) return weights.sum(at::kDouble).item<double>();
  return static_cast<double>(targets.size(0));
}

double Loss::classification_weight(const at::Tensor& targets, const at::Tensor& weights) const {
  if (targets.scalar_type() != at::kLong)
    throw UserError("loss.kind = \"cross_entropy\" needs whole numbers as targets: write loss.kind = \"mse\", or other data");
  const at::Tensor own = weights.defined() ? weights.to(at::kDouble).contiguous() : weights;
  const double* own_weight = own.defined() ? own.const_data_ptr<double>() : nullptr;
  const std::int64_t* label = targets.const_data_ptr<std::int64_t>();
  const std::int64_t samples = targets.size(0);
  const std::int64_t labels = samples > 0 ? targets.numel() / samples : 0;  // of each
  double sum = 0.0;
  double counted_samples = 0.0;
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    bool counts = false;
    for (std::int64_t i = sample * labels; i < (sample + 1) * labels; ++i) {
      if (label[i] == configuration_.ignore_index) continue;
      if (label[i] < 0 || label[i] >= num_classes_) {
        throw UserError("the data holds the label " + std::to_string(label[i]) + ", but the model has " + std::to_string(num_classes_) +
                        " classes: write model.num_classes = " + std::to_string(label[i] + 1) + " or more, or mend the data");
      }
      counts = true;
      const double of_class = configuration_.class_weights.empty() ? 1.0 : configuration_.class_weights[static_cast<std::size_t>(label[i])];
      sum += of_class * (own_weight != nullptr ? own_weight[i] : 1.0);
    }
    counted_samples += counts ? 1.0 : 0.0;
  }
  return configuration_.normalize_by == NormalizeBy::tokens ? sum : counted_samples;
}

at::Tensor Loss::sum(const at::Tensor& outputs, const at::Tensor& targets, const at::Tensor& weights) const {
  const auto reduction = weights.defined() ? at::Reduction::None : at::Reduction::Sum;
  const auto weighted = [&](const at::Tensor& loss) { return weights.defined() ? loss.mul(weights.flatten()).sum() : loss; };
  if (!is_classification()) {
    const at::Tensor wanted = targets.scalar_type() == at::kLong ? at::one_hot(targets, num_classes_).to(outputs.scalar_type()) : targets;
    // Mean over a sample's outputs, sum over samples: PyTorch's "mean" of the whole batch after the division.
    const at::Tensor loss = at::mse_loss(outputs, wanted, reduction);
    return weighted(weights.defined() ? loss.flatten(1).sum(1) : loss).div(static_cast<double>(outputs.numel() / outputs.size(0)));
  }
  std::optional<at::Tensor> class_weights;
  if (class_weights_.defined()) class_weights = class_weights_.to(outputs.device(), outputs.scalar_type());
  const auto [rows, labels] = by_label(outputs, targets, num_classes_);
  return weighted(
      at::cross_entropy_loss(rows, labels, class_weights, reduction, configuration_.ignore_index, configuration_.label_smoothing));
}

Loss::Correct Loss::count_correct(const at::Tensor& outputs, const at::Tensor& targets) const {
  const auto [rows, labels] = by_label(outputs, targets, num_classes_);
  const at::Tensor counted = labels.ne(configuration_.ignore_index);
  const at::Tensor hit = rows.argmax(1).eq(labels).logical_and(counted);
  return {hit.sum().item<double>(), counted.sum().item<double>()};
}

}  // namespace onebatch
