#include "trainer/device/autocast.hpp"

#include <ATen/autocast_mode.h>

namespace onebatch {

AutocastScope::AutocastScope(std::optional<c10::ScalarType> type, c10::Device device)
    : active_(type.has_value()), device_(device.type()) {
  if (!active_) return;
  was_enabled_ = at::autocast::is_autocast_enabled(device_);
  was_type_ = at::autocast::get_autocast_dtype(device_);
  at::autocast::set_autocast_dtype(device_, *type);
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::increment_nesting();
}

AutocastScope::~AutocastScope() {
  if (!active_) return;
  at::autocast::decrement_nesting();
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, was_type_);
}

}  // namespace onebatch
