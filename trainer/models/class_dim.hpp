// loss.class_dim: which dimension of a model's outputs counts the classes, where the user says it.
#pragma once

#include "trainer/settings/option.hpp"

#include <string>

namespace onebatch {

/// For targets [N, ...]: "last", outputs [N, ..., classes]; "second", outputs [N, classes, ...]; "auto", as shapes fit.
inline const Option<LossConfiguration, std::string> k_class_dim{"class_dim", "auto"};

}  // namespace onebatch
