// What keeps float16 gradients in range: the loss is multiplied by a power of two before the backward, and the gradient
// divided by it.
//
// Note [Loss scale]. The scale is that of the mean loss of the global batch, as PyTorch's GradScaler knows it, and
// follows the same rules. What is multiplied is the sum, so its factor is the scale over the number of samples in the
// step's batch, a short last one too: what flows through the backward has the bits that one single batch's mean under
// GradScaler has, and the factor and 1/weight do not underflow one after the other. Each micro-batch's gradient is
// rounded to float16 by itself, as in PyTorch's accumulation under GradScaler, so what overflows is that. An infinity
// or NaN anywhere is in the ranks' sum, so that all find it, and skip the step, once.
#pragma once

#include "trainer/base/configuration.hpp"

#include <string>

namespace onebatch {

/// Whether a run computes in it anywhere.
inline bool uses_float16(const PrecisionConfiguration& precision) {
  return precision.compute == Precision::float16 || precision.parameters == Precision::float16;
}

/// Of a step: whether an infinity or NaN is in its gradient.
enum class GradientRange { finite, overflowed };

class LossScale {
 public:
  LossScale(const PrecisionConfiguration& precision, std::int64_t global_batch_size);

  /// Whether a step whose gradient is not finite is skipped.
  [[nodiscard]] bool is_active() const { return active_; }
  /// Of the mean loss.
  [[nodiscard]] double scale() const { return scale_; }
  /// How many samples the loss of the steps from here on is summed over.
  void set_batch_size(std::int64_t samples) { divisor_ = static_cast<double>(samples); }
  /// Of the summed loss; 1 where nothing is scaled.
  [[nodiscard]] double factor() const { return active_ ? scale_ / divisor_ : 1.0; }
  /// After each step: halves the scale where the gradient was not finite, doubles it after so many steps in a row where
  /// it was. False where that cannot help any more.
  bool update(GradientRange gradient);
  /// Once update() was false: which scales were tried, "at any loss scale down to 0.001".
  [[nodiscard]] std::string tried_text() const;

  [[nodiscard]] std::int64_t steps_since_change() const { return good_steps_; }
  void resume(double scale, std::int64_t steps_since_change);

 private:
  bool active_;
  bool dynamic_;
  double scale_;
  double divisor_;
  std::int64_t growth_steps_;
  std::int64_t good_steps_ = 0;
  std::int64_t bad_steps_ = 0;
};

}  // namespace onebatch
