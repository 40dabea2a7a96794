// What is said of weights that do not fit a model.
#pragma once

#include <string>
#include <vector>

namespace onebatch {

/// Names with their shapes, as "fc.weight" and "[10, 512]".
struct MisfitTensor {
  std::string name;
  std::string shape;
  std::string model_shape = {};  // of a tensor that has another there
};

struct WeightsMisfit {
  std::vector<MisfitTensor> missing;   // in the file
  std::vector<MisfitTensor> reshaped;  // there and here, in two shapes
  std::vector<MisfitTensor> unknown;   // to the model
  std::vector<std::string> left_out;   // of the file, since they lack the prefix
};

/// Empty where nothing is missing, reshaped or unknown; else ten of each with the number of the others, and what to
/// write.
std::string misfit_text(const WeightsMisfit& misfit);

}  // namespace onebatch
