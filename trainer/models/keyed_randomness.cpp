#include "trainer/models/keyed_randomness.hpp"

#include "trainer/base/error.hpp"
#include "trainer/models/keyed_recurrent.hpp"
#include "trainer/models/sample_dropout.hpp"

#include <ATen/ops/_safe_softmax.h>
#include <ATen/ops/alpha_dropout_native.h>
#include <ATen/ops/dropout_native.h>
#include <ATen/ops/feature_alpha_dropout_native.h>
#include <ATen/ops/feature_dropout_native.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention_native.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <set>
#include <utility>

namespace onebatch {
namespace {

thread_local const ForwardContext* context = nullptr;
thread_local RandomPlace next;
thread_local std::exception_ptr refused;

enum class Spread { elements, channels };

at::Tensor noise_along(const at::Tensor& like, at::IntArrayRef sizes, double probability, double kept) {
  const std::int64_t layer = next.layer++;
  if (!next.samples_along) return shared_noise_like(like, sizes, probability, kept, layer, *context);
  std::vector<std::int64_t> rows = sizes.vec();
  const auto first = rows.begin();
  std::rotate(first, first + *next.samples_along, first + *next.samples_along + 1);
  return sample_noise_like(like, rows, probability, kept, layer, *context).movedim(0, *next.samples_along);
}

// 0 or `kept` for each element, or one for each of a sample's channels.
at::Tensor noise_for(const at::Tensor& inputs, double probability, Spread spread, double kept) {
  std::vector<std::int64_t> sizes = inputs.sizes().vec();
  if (spread == Spread::channels) {
    for (std::size_t i = 2; i < sizes.size(); ++i) sizes[i] = 1;
  }
  return keyed_noise(inputs, sizes, probability, kept);
}

// What to multiply with and what to add.
struct Change {
  at::Tensor factor;
  at::Tensor offset;
};

Change plain(const at::Tensor& inputs, double probability, Spread spread) {
  return {noise_for(inputs, probability, spread, probability < 1.0 ? 1.0 / (1.0 - probability) : 0.0), {}};
}

// Keeps mean and variance behind a SELU (Klambauer et al., 2017, section 3.4).
Change alpha(const at::Tensor& inputs, double probability, Spread spread) {
  constexpr double k_alpha = 1.7580993408473766;
  const at::Tensor noise = noise_for(inputs, probability, spread, 1.0);
  if (probability == 1.0) return {noise.zero_(), {}};
  const double a = 1.0 / std::sqrt((k_alpha * k_alpha * probability + 1.0) * (1.0 - probability));
  const at::Tensor offset = noise.sub(1.0).mul_(k_alpha * a).add_(k_alpha * a * probability);
  return {noise.mul_(a), offset};
}

template <auto Make, Spread Where, auto Own>
at::Tensor changed(const at::Tensor& inputs, double probability, bool train) {
  if (!train || !draws_keyed(probability)) return Own(inputs, probability, train);
  const auto [factor, offset] = Make(inputs, probability, Where);
  const at::Tensor product = inputs.mul(factor);
  return offset.defined() ? product.add(offset) : product;
}

template <auto Make, Spread Where, auto Own>
at::Tensor& changed_in_place(at::Tensor& inputs, double probability, bool train) {
  if (!train || !draws_keyed(probability)) return Own(inputs, probability, train);
  const auto [factor, offset] = Make(inputs, probability, Where);
  inputs.mul_(factor);
  return offset.defined() ? inputs.add_(offset) : inputs;
}

// Query, key and value [N, ..., length, width]. LibTorch's fused kernels draw inside.
at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const std::optional<at::Tensor>& mask, double probability, bool is_causal,
                     std::optional<double> scale, bool enable_gqa) {
  if (!draws_keyed(probability))
    return at::native::scaled_dot_product_attention(query, key, value, mask, probability, is_causal, scale, enable_gqa);
  const auto as_many_heads = [&](const at::Tensor& tensor) {
    return enable_gqa ? tensor.repeat_interleave(query.size(-3) / tensor.size(-3), -3) : tensor;
  };
  const double factor = scale.value_or(1.0 / std::sqrt(static_cast<double>(query.size(-1))));
  at::Tensor scores = at::matmul(query.mul(factor), as_many_heads(key).transpose(-2, -1));
  const auto forbid = [&](const at::Tensor& allowed) { scores = scores.masked_fill(allowed.logical_not(), -INFINITY); };
  if (is_causal) forbid(at::ones({query.size(-2), key.size(-2)}, query.options().dtype(at::kBool)).tril());
  if (mask && mask->defined()) {
    if (mask->scalar_type() == at::kBool)
      forbid(*mask);
    else
      scores = scores.add(*mask);
  }
  const at::Tensor weights = at::_safe_softmax(scores, -1);  // 0 where a query may see nothing
  return at::matmul(weights.mul(plain(weights, probability, Spread::elements).factor), as_many_heads(value));
}

void register_on(torch::Library& library, c10::DispatchKey key) {
  using at::native::alpha_dropout, at::native::alpha_dropout_, at::native::dropout, at::native::dropout_;
  using at::native::feature_alpha_dropout, at::native::feature_alpha_dropout_, at::native::feature_dropout,
      at::native::feature_dropout_;
  const auto on = [&](auto* kernel) { return torch::dispatch(key, kernel); };
  library.impl("dropout", on(&changed<&plain, Spread::elements, &dropout>));
  library.impl("dropout_", on(&changed_in_place<&plain, Spread::elements, &dropout_>));
  library.impl("feature_dropout", on(&changed<&plain, Spread::channels, &feature_dropout>));
  library.impl("feature_dropout_", on(&changed_in_place<&plain, Spread::channels, &feature_dropout_>));
  library.impl("alpha_dropout", on(&changed<&alpha, Spread::elements, &alpha_dropout>));
  library.impl("alpha_dropout_", on(&changed_in_place<&alpha, Spread::elements, &alpha_dropout_>));
  library.impl("feature_alpha_dropout", on(&changed<&alpha, Spread::channels, &feature_alpha_dropout>));
  library.impl("feature_alpha_dropout_", on(&changed_in_place<&alpha, Spread::channels, &feature_alpha_dropout_>));
  library.impl("scaled_dot_product_attention", on(&attention));
  register_recurrent(library, key);
}

std::shared_ptr<torch::Library> register_all() {
  auto library = std::make_shared<torch::Library>(torch::Library::IMPL, "aten", std::nullopt, __FILE__, __LINE__);
  using Key = c10::DispatchKey;
  for (const Key key : {Key::AutogradCPU, Key::CPU, Key::AutogradCUDA, Key::CUDA}) register_on(*library, key);
  return library;
}

}  // namespace

std::shared_ptr<void> hold_keyed_operators() {
  static std::mutex mutex;
  static std::weak_ptr<torch::Library> held;
  const std::lock_guard lock(mutex);
  auto library = held.lock();
  if (!library) held = library = register_all();
  return library;
}

bool is_keyed_random(const std::string& operator_name) {
  static const std::set<std::string> names = {"aten::dropout",
                                              "aten::dropout_",
                                              "aten::feature_dropout",
                                              "aten::feature_dropout_",
                                              "aten::alpha_dropout",
                                              "aten::alpha_dropout_",
                                              "aten::feature_alpha_dropout",
                                              "aten::feature_alpha_dropout_",
                                              "aten::scaled_dot_product_attention",
                                              "aten::lstm",
                                              "aten::gru",
                                              "aten::rnn_tanh",
                                              "aten::rnn_relu"};
  return names.contains(operator_name);
}

bool draws_keyed(double probability) {
  return context != nullptr && probability > 0.0;
}

at::Tensor keyed_noise(const at::Tensor& like, at::IntArrayRef sizes, double probability, double kept) {
  try {
    return noise_along(like, sizes, probability, kept);
  } catch (const UserError&) {
    refused = std::current_exception();
    throw;
  }
}

DrawnAlong::DrawnAlong(std::optional<std::int64_t> dimension) : outer_(std::exchange(next.samples_along, dimension)) {}

DrawnAlong::~DrawnAlong() {
  next.samples_along = outer_;
}

void refuse_to_draw(const std::string& why) {
  refused = std::make_exception_ptr(UserError(why));
  std::rethrow_exception(refused);
}

RandomnessScope::RandomnessScope(const ForwardContext& scope) : outer_(context), outer_place_(next) {
  context = &scope;
  next = {};
  refused = nullptr;
}

std::exception_ptr RandomnessScope::refusal() const {
  return refused;
}

RandomnessScope::~RandomnessScope() {
  context = outer_;
  next = outer_place_;
}

const RandomPlace& random_place() {
  return next;
}

void set_random_place(const RandomPlace& place) {
  next = place;
}

}  // namespace onebatch
