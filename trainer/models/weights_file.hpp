// Weights of a file, given to a model.
#pragma once

#include "trainer/models/fresh_weights.hpp"

namespace onebatch {

/// Copies what `model.weights` names into parameters and buffers, names read as `model.weights_prefix` says. What has
/// several names may stand under any of them; a buffer that is no running statistic may be missing, and stays as the
/// model has it. What is in `fresh` is left alone, whether the file has it or not, and of whatever shape. Throws
/// UserError naming what is missing, unknown or of another shape, ten of each, and what to write.
void load_weights(Model& model, const ModelConfiguration& configuration, const TensorSet& fresh = {});

/// Parameters and buffers under all of their names.
std::vector<NamedTensor> with_all_names(const Model& model);

}  // namespace onebatch
