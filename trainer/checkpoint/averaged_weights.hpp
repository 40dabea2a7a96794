// A checkpoint's averaged weights, which lie among the optimizer's tensors as "ema.NAME".
#pragma once

#include "trainer/base/weights_choice.hpp"
#include "trainer/io/checksum.hpp"
#include "trainer/models/model.hpp"
#include "trainer/optim/optimizer.hpp"

#include <filesystem>
#include <map>
#include <string>

namespace onebatch {

/// Other names of the model's parameters, as tied weights have them, and that which each has among parameters().
std::map<std::string, std::string> shared_names(const Model& model);

bool has_averaged_weights(const std::filesystem::path& checkpoint);

/// Whether the averaged ones are to be taken. Throws UserError where they are asked for and not there.
bool takes_averaged_weights(const std::filesystem::path& checkpoint, WeightsChoice choice);

/// The averaged weights over the weights that a model has from the same checkpoint. Throws UserError. Not collective.
void load_averaged_weights(const std::filesystem::path& checkpoint, const std::vector<NamedTensor>& state_dict);

/// What the optimizer has, but for an average that one of the two has and not the other. Whether the checkpoint has
/// one. Throws UserError. Not collective.
bool load_optimizer(const std::filesystem::path& checkpoint, const Optimizer& optimizer);

/// A checkpoint's model with averaged weights in the place of those that were trained, under all of its names, as one
/// safetensors file at `target`. Returns its checksum. Throws UserError.
Checksum write_averaged_model(const std::filesystem::path& checkpoint, const std::filesystem::path& target);

}  // namespace onebatch
