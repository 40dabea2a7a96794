#include "trainer/step/segment_input.hpp"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <utility>

namespace onebatch {

class SegmentInput::End final : public torch::autograd::Node {
 public:
  at::Tensor gradient;

 private:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    gradient = std::move(gradients.front());
    return {};
  }
};

SegmentInput::SegmentInput(const at::Tensor& tensor)
    : end_(new End(), torch::autograd::deleteNode), tensor_(tensor.detach()) {
  torch::autograd::set_history(tensor_, end_);
}

const at::Tensor& SegmentInput::gradient() const {
  return end_->gradient;
}

}  // namespace onebatch
