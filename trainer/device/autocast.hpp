// Forwards in a shorter type, as torch.autocast does it.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>

namespace onebatch {

/// While one lives, operators for which that is safe compute in `type`; none: nothing changes. For one forward, or a
/// part of one: what was cast is forgotten at its end, since weights change in place between steps, and casts made
/// without gradients must not serve a forward with them.
class AutocastScope {
 public:
  AutocastScope(std::optional<c10::ScalarType> type, c10::Device device);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  bool active_;
  c10::DeviceType device_;
  bool was_enabled_ = false;
  c10::ScalarType was_type_ = c10::ScalarType::Float;
};

}  // namespace onebatch
