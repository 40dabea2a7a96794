// The loss as a sum and its weight, never a mean. See Note [Sum, then divide once].
#pragma once

#include "trainer/models/model.hpp"

#include <ATen/core/Tensor.h>

namespace onebatch {

class Loss {
 public:
  /// Throws UserError where the configuration does not fit `num_classes`.
  Loss(const LossConfiguration& configuration, std::int64_t num_classes);

  /// The weight of a micro-batch, by which its global batch is divided. By tokens: labels that are not ignored, each times its class's and
  /// its own weight (PyTorch's "mean"). By samples: those with a label that counts. `targets` [N, ...] and `weights` (of the same shape, or
  /// undefined) on the CPU. Throws UserError on a label outside 0 … num_classes − 1.
  [[nodiscard]] double weight(const at::Tensor& targets, const at::Tensor& weights = {}) const;
  /// The sum over all labels, a scalar on the graph. For targets [N, ...] outputs are [N, ..., num_classes], as language models return
  /// them, or [N, num_classes, ...], as PyTorch's cross_entropy takes them; on the same device.
  [[nodiscard]] at::Tensor sum(const at::Tensor& outputs, const at::Tensor& targets, const at::Tensor& weights = {}) const;
  /// Labels that are their outputs' largest, and how many count (are not ignored). Classification only.
  struct Correct {
    double correct = 0.0;
    double counted = 0.0;
  };
  [[nodiscard]] Correct count_correct(const at::Tensor& outputs, const at::Tensor& targets) const;
  /// Tensors that the sum is made with, beside outputs and targets.
  [[nodiscard]] std::vector<NamedTensor> constants() const;
  /// Whether the model computes its loss itself.
  [[nodiscard]] bool is_the_models() const { return configuration_.kind == LossKind::model; }
  [[nodiscard]] bool is_classification() const { return configuration_.kind == LossKind::cross_entropy; }

 private:
  [[nodiscard]] double classification_weight(const at::Tensor& targets, const at::Tensor& weights) const;

  LossConfiguration configuration_;
  std::int64_t num_classes_;
  at::Tensor class_weights_;  // float64, on the CPU; undefined where there are none
};

}  // namespace onebatch
