// A kind of loss: what its targets are, and its sum over the samples of a micro-batch.
#pragma once

#include "trainer/settings/kinds.hpp"

#include <ATen/core/Tensor.h>

namespace onebatch {

/// What a loss is taken against: class indices, numbers of the outputs' shape, or nothing, where the model computes its
/// loss itself.
enum class Targets { classes, numbers, none };

/// What a loss is summed over. Of classes rows [labels, classes] against class indices [labels], whatever layout the
/// model returned.
struct LossTensors {
  at::Tensor outputs;
  at::Tensor targets;
  at::Tensor weights;        // of the targets' shape, what each counts; undefined: 1
  at::Tensor class_weights;  // on the outputs' device, of their type; undefined: 1
  std::int64_t num_classes;
};

struct LossKind : Kind<LossConfiguration> {
  Targets targets = Targets::classes;
  /// A scalar on the graph, over all labels (of numbers: over all samples of their mean over its outputs), each times
  /// its weight; never a mean over samples. See Note [Sum, then divide once]. None where the model computes it.
  std::function<at::Tensor(const LossTensors&, const LossConfiguration&)> sum;

  /// Those of trainer/models/sources.cmake.
  static std::vector<LossKind> built_in();
};

}  // namespace onebatch
