#include "trainer/gradients/flat_gradients.hpp"

#include "trainer/models/layout.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

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

std::int64_t num_elements(const std::vector<NamedTensor>& parameters, std::int64_t element_bytes) {
  std::int64_t count = 0;
  for (const auto& [name, tensor] : parameters) {
    if (tensor.requires_grad()) count += aligned(tensor.numel(), element_bytes);
  }
  return count;
}

}  // namespace

std::vector<Bucket> make_buckets(std::int64_t num_elements, std::int64_t element_bytes, std::int64_t cap_bytes) {
  const std::int64_t cap = std::max<std::int64_t>(1, cap_bytes / element_bytes);
  std::vector<Bucket> buckets;
  for (std::int64_t begin = 0; begin < num_elements; begin += cap)
    buckets.push_back({begin, std::min(cap, num_elements - begin)});
  return buckets;
}

std::size_t FlatGradients::bytes_needed(const std::vector<NamedTensor>& parameters, const GradientOptions& options) {
  const auto element = static_cast<std::int64_t>(c10::elementSize(options.type));
  const std::int64_t count = num_elements(parameters, element);
  return static_cast<std::size_t>(options.reproducible ? ReproducibleSum::length(count, options.type) *
                                                             static_cast<std::int64_t>(sizeof(double))
                                                       : count * element);
}

FlatGradients::FlatGradients(const std::vector<NamedTensor>& parameters, std::byte* storage)
    : FlatGradients(parameters, {.type = parameters.empty() ? at::kFloat : parameters.front().tensor.scalar_type(),
                                 .storage = storage}) {}

FlatGradients::FlatGradients(const std::vector<NamedTensor>& parameters, const GradientOptions& options)
    : watched_(std::make_shared<Watched>()) {
  for (const auto& parameter : parameters) {
    if (!parameter.tensor.requires_grad()) continue;
    places_.emplace(parameter.tensor.unsafeGetTensorImpl(), parameters_.size());
    parameters_.push_back(parameter);
  }
  if (parameters_.empty()) throw std::invalid_argument("the model has no parameter that requires a gradient");
  watched_->touched.assign(parameters_.size(), 0.0);
  watched_->reached.assign(parameters_.size(), false);
  const auto element = static_cast<std::int64_t>(c10::elementSize(options.type));
  const std::int64_t total = num_elements(parameters_, element);
  const auto zeros = [&](std::int64_t count, at::ScalarType type, std::byte* storage) {
    const auto made = parameters_.front().tensor.options().requires_grad(false).dtype(type);
    const at::Tensor tensor = storage != nullptr ? at::from_blob(storage, {count}, made) : at::empty({count}, made);
    return tensor.zero_();
  };
  flat_ = zeros(total, options.type, options.reproducible ? nullptr : options.storage);
  std::int64_t begin = 0;
  for (const auto& [name, tensor] : parameters_) {
    if (!tensor.is_non_overlapping_and_dense())
      throw std::logic_error("the parameter " + name + " has gaps in its memory");
    views_.push_back(flat_.as_strided(tensor.sizes(), tensor.strides(), begin));
    extents_.push_back({begin, tensor.numel()});
    begin += aligned(tensor.numel(), element);
  }
  if (options.reproducible)
    reproducible_.emplace(extents_, zeros(ReproducibleSum::length(total, options.type), at::kDouble, options.storage),
                          total);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& tensor = parameters_[i].tensor;
    if (is_view(i)) tensor.mutable_grad() = views_[i];
    torch::autograd::impl::set_post_acc_grad_hooks(tensor, std::make_unique<TouchedHook>([this, i] {
                                                     if (!is_view(i) || gathered_) take(i);
                                                     note_added(i);
                                                   }));
  }
}

bool FlatGradients::is_view(std::size_t index) const {
  return !reproducible_ && parameters_[index].tensor.scalar_type() == flat_.scalar_type();
}

void FlatGradients::take(std::size_t index) {
  // Memory may end here: what stayed in the parameter would be added to what the halves bring.
  at::Tensor arrived = std::exchange(parameters_[index].tensor.mutable_grad(), at::Tensor());
  const at::NoGradGuard no_grad;
  written();
  if (arrived.is_sparse()) arrived = arrived.to_dense();
  const at::Tensor view = views_[index].detach();
  if (reproducible_) return reproducible_->add(index, in_memory_order(with_strides_of(view, arrived)));
  if (!gathered_ || !is_view(index)) {
    view.add_(arrived.to(flat_.scalar_type()));
    return;
  }
  gathered_->bytes += static_cast<std::int64_t>(arrived.nbytes());
  gathered_->views.push_back(view);
  gathered_->arrived.push_back(std::move(arrived));
  if (gathered_->bytes >= gathered_->most_bytes) add_gathered();
}

void FlatGradients::add_gathered() {
  const std::vector<at::Tensor> views = std::exchange(gathered_->views, {});
  const std::vector<at::Tensor> arrived = std::exchange(gathered_->arrived, {});
  gathered_->bytes = 0;
  const at::NoGradGuard no_grad;
  if (!views.empty()) at::_foreach_add_(views, arrived);
}

FlatGradients::Gathering::Gathering(FlatGradients& gradients, std::int64_t most_bytes) : gradients_(gradients) {
  if (gradients.reproducible_ || gradients.tells()) return;
  gradients.gathered_.emplace().most_bytes = most_bytes;
  for (std::size_t i = 0; i < gradients.parameters_.size(); ++i)
    gradients.parameters_[i].tensor.mutable_grad() = at::Tensor();
}

FlatGradients::Gathering::~Gathering() {
  if (!gradients_.gathered_) return;
  try {
    gradients_.add_gathered();
  } catch (const std::exception&) {  // the device has failed, which is being said
  }
  end();
}

void FlatGradients::Gathering::finish() {
  if (!gradients_.gathered_) return;
  gradients_.add_gathered();
  end();
}

void FlatGradients::Gathering::end() {
  gradients_.gathered_.reset();
  for (std::size_t i = 0; i < gradients_.parameters_.size(); ++i) {
    if (gradients_.is_view(i)) gradients_.parameters_[i].tensor.mutable_grad() = gradients_.views_[i];
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
  const auto found = index_of(parameter);
  if (!found) return;
  const std::size_t index = *found;
  written();
  const at::Tensor view = views_[index].detach();
  const at::Tensor dense = gradient.is_sparse() ? gradient.to_dense() : gradient;
  const at::Tensor summand = dense.to(view.device(), view.scalar_type()).reshape(view.sizes());
  if (reproducible_)
    reproducible_->add(index, in_memory_order(with_strides_of(view, summand)));
  else
    view.add_(summand);
  note_reached({index});
}

std::optional<std::size_t> FlatGradients::index_of(const at::Tensor& parameter) const {
  const auto found = places_.find(parameter.unsafeGetTensorImpl());
  return found != places_.end() ? std::optional(found->second) : std::nullopt;
}

void FlatGradients::note_added(std::size_t index) {
  note_reached({index});
  if (tells()) watched_->listener(index);
}

void FlatGradients::begin_backward() {
  std::fill(watched_->reached.begin(), watched_->reached.end(), false);
}

void FlatGradients::note_reached(const std::vector<std::size_t>& parameters) {
  for (const std::size_t index : parameters) {
    watched_->touched[index] = 1.0;
    watched_->reached[index] = true;
  }
}

std::vector<std::size_t> FlatGradients::reached() const {
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (watched_->reached[i]) all.push_back(i);
  }
  return all;
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

void FlatGradients::begin_step(Begin how) {
  check_views();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!is_view(i)) parameters_[i].tensor.mutable_grad() = at::Tensor();
  }
  is_unwritten_ = !reproducible_ && how == Begin::unwritten && flat_.is_cpu();
  if (reproducible_)
    reproducible_->begin_step();  // the flat buffer is written at the step's end
  else if (!is_unwritten_)
    flat_.zero_();
  std::fill(watched_->touched.begin(), watched_->touched.end(), 0.0);
}

bool FlatGradients::zero_unwritten(const std::vector<std::size_t>& but) const {
  if (!is_unwritten_) return false;
  is_unwritten_ = false;
  std::vector<Bucket> left;
  for (const std::size_t index : but) {
    if (extents_.at(index).count > 0) left.push_back(extents_[index]);
  }
  std::ranges::sort(left, {}, &Bucket::begin);
  left.push_back({flat_.numel(), 0});
  std::int64_t begin = 0;
  for (const Bucket& one : left) {
    flat_.narrow(0, begin, one.begin - begin).zero_();
    begin = one.begin + one.count;
  }
  return true;
}

void FlatGradients::complete_sum() {
  written();
  if (reproducible_) reproducible_->complete();
}

void FlatGradients::finish_sum(double divisor) {
  written();
  if (reproducible_)
    reproducible_->write_to(flat_, divisor);
  else
    flat_.div_(divisor);
}

void FlatGradients::check_views() const {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& grad = parameters_[i].tensor.grad();
    if (!is_view(i)) continue;
    if (!grad.defined() || grad.const_data_ptr() != views_[i].const_data_ptr()) {
      throw std::logic_error("the gradient of " + parameters_[i].name +
                             " left the flat buffer: something replaced or dropped its .grad");
    }
  }
}

}  // namespace onebatch
