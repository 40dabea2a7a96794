// ATen's dropouts, drawing by sample: what a model calls is the same, what it draws no longer depends on the plan.
#pragma once

#include "trainer/models/model.hpp"

#include <exception>
#include <memory>
#include <optional>

namespace onebatch {

/// Kernels for dropout, feature_dropout, alpha_dropout and feature_alpha_dropout, their in-place forms, and
/// scaled_dot_product_attention and recurrent layers with dropout, that draw as sample_noise() does while a
/// RandomnessScope lives, and else pass on to LibTorch's own. Registered as long as someone holds them; on the threads
/// of the process, as operators are.
std::shared_ptr<void> hold_keyed_operators();

/// What the next random layer of a scope draws by.
struct RandomPlace {
  std::int64_t layer = 0;                         // how many have run before it
  std::optional<std::int64_t> samples_along = 0;  // the dimension of its samples; none: all of them share what it draws
};

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
  RandomPlace outer_place_;
};

/// While it lives, random layers have their samples along this dimension; none: all samples share what is drawn.
/// Recurrent layers know where their samples are.
class DrawnAlong {
 public:
  explicit DrawnAlong(std::optional<std::int64_t> dimension);
  ~DrawnAlong();
  DrawnAlong(const DrawnAlong&) = delete;
  DrawnAlong& operator=(const DrawnAlong&) = delete;

 private:
  std::optional<std::int64_t> outer_;
};

/// Whether a dropout that is in training draws by sample here and now.
bool draws_keyed(double probability);
/// sample_noise_like() of the next random layer of the scope.
at::Tensor keyed_noise(const at::Tensor& like, at::IntArrayRef sizes, double probability, double kept);
/// Throws UserError, which outlives TorchScript's interpreter as the scope's refusal().
[[noreturn]] void refuse_to_draw(const std::string& why);

/// Of what runs now; and for a layer that runs again, out of order.
const RandomPlace& random_place();
void set_random_place(const RandomPlace& place);

}  // namespace onebatch
