// A kind of model: what makes it of its configuration and the data's shapes.
#pragma once

#include "trainer/models/model.hpp"
#include "trainer/settings/kinds.hpp"

namespace onebatch {

struct ModelKind : Kind<ModelConfiguration> {
  /// On the CPU, float32. Throws UserError where data and model do not fit together.
  std::function<std::unique_ptr<Model>(const ModelRequest&)> make;
  /// What is said of it once, as it is made; none: nothing.
  std::function<std::string(const ModelConfiguration&)> notice;

  /// Those of trainer/models/sources.cmake.
  static std::vector<ModelKind> built_in();
};

/// Of a classifier: the configuration's, or else the data's. Throws UserError where the data has more.
std::int64_t classes_of(const ModelRequest& request);

/// Of a built-in model: classes_of(). Throws UserError where that is 0, as it is of targets that are numbers.
std::int64_t outputs_of(const ModelRequest& request);

/// What is to be said of the chosen kind; empty: nothing.
std::string model_notice(const ModelConfiguration& model);

}  // namespace onebatch
