#include "trainer/gradients/loss_scale.hpp"

#include <fmt/format.h>

namespace onebatch {
namespace {

constexpr double k_first_scale = 65536.0;           // GradScaler's
constexpr double k_least_scale = 1.0 / 1024.0;      // below it the gradient is not finite for another reason
constexpr std::int64_t k_most_fixed_failures = 20;  // in a row, of a scale that does not move

}  // namespace

LossScale::LossScale(const PrecisionConfiguration& precision, std::int64_t global_batch_size)
    : active_(uses_float16(precision)),
      dynamic_(!precision.loss_scale),
      scale_(active_ ? precision.loss_scale.value_or(k_first_scale) : 1.0),
      divisor_(static_cast<double>(global_batch_size)),
      growth_steps_(precision.loss_scale_growth_steps) {}

bool LossScale::update(GradientRange gradient) {
  const bool finite = gradient == GradientRange::finite;
  if (!active_) return finite;
  bad_steps_ = finite ? 0 : bad_steps_ + 1;
  if (!dynamic_) return bad_steps_ < k_most_fixed_failures;
  if (!finite) {
    scale_ /= 2.0;
    good_steps_ = 0;
    return scale_ >= k_least_scale;
  }
  if (++good_steps_ >= growth_steps_) {
    scale_ *= 2.0;
    good_steps_ = 0;
  }
  return true;
}

// A dynamic one has been halved since its last step.
std::string LossScale::tried_text() const {
  if (dynamic_) return fmt::format("at any loss scale down to {:g}", 2.0 * scale_);
  return fmt::format("at the fixed loss scale {:g}, {} steps in a row", scale_, bad_steps_);
}

void LossScale::resume(double scale, std::int64_t steps_since_change) {
  if (!active_ || !dynamic_) return;
  scale_ = scale;
  good_steps_ = steps_since_change;
}

}  // namespace onebatch
