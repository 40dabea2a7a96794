// The loss as a sum and its weight, never a mean. See Note [Sum, then divide once].
#pragma once

#include "trainer/models/loss_kind.hpp"
#include "trainer/models/model.hpp"

#include <ATen/core/Tensor.h>

#include <optional>

namespace onebatch {

/// Where outputs have their classes: [N, ..., classes], [N, classes, ...], or [labels, classes] for targets [N, ...].
enum class ClassLayout { last, second, flat };

/// What a model returned for the targets of some samples.
struct SeenShapes {
  std::vector<std::int64_t> outputs;
  std::vector<std::int64_t> targets;
};

/// Why a label is none of so many classes, in words that say what to write instead.
std::string wrong_label(std::int64_t label, std::int64_t num_classes);

/// What the chosen kind of loss is taken against.
inline Targets targets_of(const LossConfiguration& loss) {
  return chosen_kind<LossKind>(loss).targets;
}

class Loss {
 public:
  /// Throws UserError where the configuration does not fit `num_classes`.
  Loss(const LossConfiguration& configuration, std::int64_t num_classes);

  /// Classification: decides once how outputs are laid out, as what fits all that was seen. Throws UserError where
  /// nothing does, or more than one layout. Where nothing was decided outputs that fit in two ways are refused.
  void settle(const std::vector<SeenShapes>& seen);

  /// Which dimension of outputs counts the classes, as loss.class_dim has it: as it was settled, or else as asked for.
  [[nodiscard]] std::string class_dim() const;

  /// Outputs are going to be there, and of this type: what the sum is made with is copied there once, and not in every
  /// micro-batch.
  void place(c10::Device device, at::ScalarType type);

  /// The weight of a micro-batch, by which its global batch is divided. By tokens: labels that are not ignored, each
  /// times its class's and its own weight (PyTorch's "mean"). By samples: those with a label that counts. Of squared
  /// errors: the labels' weights, or the samples with one that is not 0. `targets` [N, ...] and `weights` (of that
  /// shape, or undefined) on the CPU. Throws UserError on a label outside 0 … num_classes − 1.
  [[nodiscard]] double weight(const at::Tensor& targets, const at::Tensor& weights = {}) const;
  /// The sum over all labels, a scalar on the graph; of squared errors without weights of their mean over each sample's
  /// outputs. For class indices [N, ...] outputs are [N, ..., num_classes], as language models return them, or [N,
  /// num_classes, ...], as PyTorch's cross_entropy takes them; else they have the targets' shape. Two labels [N, 2] of
  /// mixed samples, each with its weight, may have one row [N, num_classes]. On the same device.
  [[nodiscard]] at::Tensor sum(const at::Tensor& outputs, const at::Tensor& targets,
                               const at::Tensor& weights = {}) const;
  /// Labels that are their outputs' largest, and how many count (are not ignored). Classification only.
  struct Correct {
    double correct = 0.0;
    double counted = 0.0;
  };
  [[nodiscard]] Correct count_correct(const at::Tensor& outputs, const at::Tensor& targets) const;
  /// Outputs and targets as a row for each label. Classification only; throws UserError where they do not fit together.
  struct ByLabel {
    at::Tensor rows;    // [labels, classes], the model's outputs
    at::Tensor labels;  // [labels]
  };
  [[nodiscard]] ByLabel by_label(const at::Tensor& outputs, const at::Tensor& targets) const;
  /// The label that counts for nothing.
  [[nodiscard]] std::int64_t ignore_index() const { return configuration_.ignore_index; }
  [[nodiscard]] std::int64_t num_classes() const { return num_classes_; }
  /// Tensors that the sum is made with, beside outputs and targets.
  [[nodiscard]] std::vector<NamedTensor> constants() const;
  /// Whether the model computes its loss itself.
  [[nodiscard]] bool is_the_models() const { return kind_->targets == Targets::none; }
  [[nodiscard]] bool is_classification() const { return kind_->targets == Targets::classes; }

 private:
  [[nodiscard]] at::Tensor class_weights_of(const at::Tensor& outputs) const;
  [[nodiscard]] double classification_weight(const at::Tensor& targets, const at::Tensor& weights) const;

  LossConfiguration configuration_;
  const LossKind* kind_;
  std::int64_t num_classes_;
  std::optional<ClassLayout> layout_;
  at::Tensor class_weights_;         // float64, on the CPU; undefined where there are none
  at::Tensor placed_class_weights_;  // undefined until place()
};

}  // namespace onebatch
