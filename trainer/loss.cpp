#include "trainer/loss.hpp"

#include "trainer/error.hpp"

#include <ATen/core/Reduction.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/tensor.h>

namespace onebatch {

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

double Loss::weight(const at::Tensor& targets) const {
  return is_classification() ? classification_weight(targets) : static_cast<double>(targets.size(0));
}

double Loss::classification_weight(const at::Tensor& targets) const {
  double sum = 0.0;
  const std::int64_t* label = targets.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < targets.numel(); ++i) {
    if (label[i] == configuration_.ignore_index) continue;
    if (label[i] < 0 || label[i] >= num_classes_) {
      throw UserError("the data holds the label " + std::to_string(label[i]) + ", but the model has " + std::to_string(num_classes_) +
                      " classes: write model.num_classes = " + std::to_string(label[i] + 1) + " or more, or mend the data");
    }
    sum += configuration_.class_weights.empty() ? 1.0 : configuration_.class_weights[static_cast<std::size_t>(label[i])];
  }
  return sum;
}

at::Tensor Loss::sum(const at::Tensor& outputs, const at::Tensor& targets) const {
  if (!is_classification()) {
    const at::Tensor wanted = targets.scalar_type() == at::kLong ? at::one_hot(targets, num_classes_).to(outputs.scalar_type()) : targets;
    // Mean over a sample's outputs, sum over samples: PyTorch's "mean" of the whole batch after the division.
    return at::mse_loss(outputs, wanted, at::Reduction::Sum).div(static_cast<double>(outputs.numel() / outputs.size(0)));
  }
  std::optional<at::Tensor> class_weights;
  if (class_weights_.defined()) class_weights = class_weights_.to(outputs.device(), outputs.scalar_type());
  return at::cross_entropy_loss(outputs, targets, class_weights, at::Reduction::Sum, configuration_.ignore_index,
                                configuration_.label_smoothing);
}

Loss::Correct Loss::count_correct(const at::Tensor& outputs, const at::Tensor& targets) const {
  const at::Tensor counted = targets.ne(configuration_.ignore_index);
  const at::Tensor hit = outputs.argmax(1).eq(targets).logical_and(counted);
  return {hit.sum().item<double>(), counted.sum().item<double>()};
}

}  // namespace onebatch
