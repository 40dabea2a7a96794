#include "trainer/gradients/flat_gradients.hpp"

#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <stdexcept>

namespace onebatch {
namespace {

constexpr std::int64_t k_alignment_bytes = 64;

class TouchedHook final : public torch::autograd::PostAccumulateGradHook {
 public:
  TouchedHook(std::shared_ptr<std::vector<double>> touched, std::size_t index) : touched_(std::move(touched)), index_(index) {}
  void operator()(const torch::autograd::Variable& /*parameter*/) override { (*touched_)[index_] = 1.0; }

 private:
  std::shared_ptr<std::vector<double>> touched_;
  std::size_t index_;
};

std::int64_t aligned(std::int64_t count, std::int64_t element_bytes) {
  const std::int64_t step = std::max<std::int64_t>(1, k_alignment_bytes / element_bytes);
  return (count + step - 1) / step * step;
}

}  // namespace

std::vector<Bucket> make_buckets(std::int64_t num_elements, std::int64_t element_bytes, std::int64_t cap_bytes) {
  const std::int64_t cap = std::max<std::int64_t>(1, cap_bytes / element_bytes);
  std::vector<Bucket> buckets;
  for (std::int64_t begin = 0; begin < num_elements; begin += cap) buckets.push_back({begin, std::min(cap, num_elements - begin)});
  return buckets;
}

FlatGradients::FlatGradients(const std::vector<NamedTensor>& parameters) : touched_(std::make_shared<std::vector<double>>()) {
  for (const auto& parameter : parameters) {
    if (parameter.tensor.requires_grad()) parameters_.push_back(parameter);
  }
  if (parameters_.empty()) throw std::invalid_argument("the model has no parameter that requires a gradient");
  touched_->assign(parameters_.size(), 0.0);
  std::int64_t total = 0;
  for (const auto& [name, tensor] : parameters_) total += aligned(tensor.numel(), static_cast<std::int64_t>(tensor.element_size()));
  flat_ = at::zeros({total}, parameters_.front().tensor.options().requires_grad(false));
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& tensor = parameters_[i].tensor;
    views_.push_back(flat_.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    begin += aligned(tensor.numel(), static_cast<std::int64_t>(tensor.element_size()));
    tensor.mutable_grad() = views_.back();
    torch::autograd::impl::set_post_acc_grad_hooks(tensor, std::make_unique<TouchedHook>(touched_, i));
  }
}

FlatGradients::~FlatGradients() {
  for (const auto& parameter : parameters_) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameter.tensor, nullptr);
    parameter.tensor.mutable_grad() = at::Tensor();
  }
}

const std::vector<double>& FlatGradients::touched() const {
  return *touched_;
}

void FlatGradients::begin_step() {
  check_views();
  flat_.zero_();
  std::fill(touched_->begin(), touched_->end(), 0.0);
}

void FlatGradients::check_views() const {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& grad = parameters_[i].tensor.grad();
    if (!grad.defined() || grad.const_data_ptr() != views_[i].const_data_ptr()) {
      throw std::logic_error("the gradient of " + parameters_[i].name + " left the flat buffer: something replaced or dropped its .grad");
    }
  }
}

}  // namespace onebatch
