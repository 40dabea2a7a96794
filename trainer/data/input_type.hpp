// In what a model's inputs and targets arrive.
#pragma once

#include <c10/core/ScalarType.h>

namespace onebatch {

/// Of what is stored as `stored`, in a run of `type`: whole numbers as int64, booleans as they are.
inline at::ScalarType input_type(at::ScalarType stored, at::ScalarType type) {
  if (c10::isFloatingType(stored)) return type;
  return stored == at::kBool ? stored : at::kLong;
}

/// Likewise of targets, where booleans are classes.
inline at::ScalarType target_type(at::ScalarType stored, at::ScalarType type) {
  return c10::isFloatingType(stored) ? type : at::kLong;
}

}  // namespace onebatch
