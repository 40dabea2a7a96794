#include "trainer/gradients/flat_gradients.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <stdexcept>

namespace onebatch {
namespace {

constexpr std::int64_t k_alignment_bytes = 64;

class TouchedHook final : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit TouchedHook(std::function<void()> touched) : touched_(std::move(touched)) {}
  void operator()(const torch::autograd::Variable& /*parameter*/) override { touched_(); }

 private:
  std::function<void()> touched_;
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

std::size_t FlatGradients::bytes_needed(const std::vector<NamedTensor>& parameters) {
  std::int64_t bytes = 0;
  for (const auto& [name, tensor] : parameters) {
    const auto element = static_cast<std::int64_t>(tensor.element_size());
    if (tensor.requires_grad()) bytes += aligned(tensor.numel(), element) * element;
  }
  return static_cast<std::size_t>(bytes);
}

FlatGradients::FlatGradients(const std::vector<NamedTensor>& parameters, std::byte* storage) : watched_(std::make_shared<Watched>()) {
  for (const auto& parameter : parameters) {
    if (parameter.tensor.requires_grad()) parameters_.push_back(parameter);
  }
  if (parameters_.empty()) throw std::invalid_argument("the model has no parameter that requires a gradient");
  watched_->touched.assign(parameters_.size(), 0.0);
  watched_->reached.assign(parameters_.size(), false);
  const auto options = parameters_.front().tensor.options().requires_grad(false);
  const auto element = static_cast<std::int64_t>(parameters_.front().tensor.element_size());
  const std::int64_t total = static_cast<std::int64_t>(bytes_needed(parameters_)) / element;
  flat_ = storage != nullptr ? at::from_blob(storage, {total}, options) : at::empty({total}, options);
  flat_.zero_();
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& tensor = parameters_[i].tensor;
    views_.push_back(flat_.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    extents_.push_back({begin, tensor.numel()});
    begin += aligned(tensor.numel(), element);
    tensor.mutable_grad() = views_.back();
    torch::autograd::impl::set_post_acc_grad_hooks(tensor, std::make_unique<TouchedHook>([watched = watched_, i] {
                                                     watched->touched[i] = 1.0;
                                                     watched->reached[i] = true;
                                                     if (watched->listener && watched->unheard == 0) watched->listener(i);
                                                   }));
  }
}

void FlatGradients::set_listener(std::function<void(std::size_t)> listener) {
  watched_->listener = std::move(listener);
}

FlatGradients::~FlatGradients() {
  for (const auto& parameter : parameters_) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameter.tensor, nullptr);
    parameter.tensor.mutable_grad() = at::Tensor();
  }
}

void FlatGradients::add(const at::Tensor& parameter, const at::Tensor& gradient) {
  const auto found =
      std::find_if(parameters_.begin(), parameters_.end(), [&](const NamedTensor& own) { return own.tensor.is_same(parameter); });
  if (found == parameters_.end()) return;
  const auto index = static_cast<std::size_t>(found - parameters_.begin());
  const at::Tensor view = views_[index].detach();
  view.add_(gradient.to(view.device(), view.scalar_type()).view(view.sizes()));
  watched_->touched[index] = 1.0;
  watched_->reached[index] = true;
}

void FlatGradients::begin_backward() {
  std::fill(watched_->reached.begin(), watched_->reached.end(), false);
}

std::vector<std::size_t> FlatGradients::not_reached(const std::optional<std::vector<std::size_t>>& of) const {
  std::vector<std::size_t> missing;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const bool asked = !of || std::find(of->begin(), of->end(), i) != of->end();
    if (asked && !watched_->reached[i]) missing.push_back(i);
  }
  return missing;
}

const std::vector<double>& FlatGradients::touched() const {
  return watched_->touched;
}

void FlatGradients::begin_step() {
  check_views();
  flat_.zero_();
  std::fill(watched_->touched.begin(), watched_->touched.end(), 0.0);
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
