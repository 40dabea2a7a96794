// ATen's dropouts, drawing by sample: what a model calls is the same, what it draws no longer depends on the plan.
#pragma once

#include "trainer/models/model.hpp"

#include <exception>
#include <memory>

namespace onebatch {

/// Kernels for dropout, feature_dropout, alpha_dropout and feature_alpha_dropout, their in-place forms, and
/// scaled_dot_product_attention and recurrent layers with dropout, that draw as sample_noise() does while a
/// RandomnessScope lives, and else pass on to LibTorch's own. Registered as long as someone holds them; on the threads
/// of the process, as operators are.
std::shared_ptr<void> hold_keyed_operators();

/// Whether an operator ("aten::dropout") is one of them.
bool is_keyed_random(const std::string& operator_name);

/// One forward of a model, or a part of it: random layers are numbered from 0 as they run. Keeps a pointer to the
/// context.
class RandomnessScope {
 public:
  explicit RandomnessScope(const ForwardContext& context);
  ~RandomnessScope();
  RandomnessScope(const RandomnessScope&) = delete;
  RandomnessScope& operator=(const RandomnessScope&) = delete;

  /// The UserError with which an operator refused to draw; null: none did.
  [[nodiscard]] std::exception_ptr refusal() const;

 private:
  const ForwardContext* outer_;
  std::int64_t outer_layer_;
};

/// Whether a dropout that is in training draws by sample here and now.
bool draws_keyed(double probability);
/// sample_noise_like() of the next random layer of the scope.
at::Tensor keyed_noise(const at::Tensor& like, at::IntArrayRef sizes, double probability, double kept);
/// Throws UserError, which outlives TorchScript's interpreter as the scope's refusal().
[[noreturn]] void refuse_to_draw(const std::string& why);

/// How many random layers have run in the scope; what comes next has this number.
std::int64_t random_layers_so_far();
/// For a layer that runs again, out of order.
void set_random_layer(std::int64_t number);

}  // namespace onebatch
