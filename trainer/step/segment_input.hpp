// What a segment reads of others, and the gradient that its backward gives it.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace onebatch {

/// The start of a segment's graph. No leaf: a leaf's gradient takes the leaf's strides, and what is summed from another
/// layout has other bits than in the backward of a whole model.
class SegmentInput {
 public:
  /// Shares the memory of `tensor`, which is of a floating type, and nothing of its graph.
  explicit SegmentInput(const at::Tensor& tensor);

  /// For the segment to read, and for its backward to start from where others have given it a gradient already.
  [[nodiscard]] const at::Tensor& tensor() const { return tensor_; }
  /// As the engine has summed it; undefined before the backward, and where nothing was read.
  [[nodiscard]] const at::Tensor& gradient() const;

 private:
  class End;

  std::shared_ptr<End> end_;
  at::Tensor tensor_;
};

}  // namespace onebatch
