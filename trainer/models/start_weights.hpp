// What a model begins with, and which part of it is trained.
#pragma once

#include "trainer/models/model.hpp"

namespace onebatch {

/// Gives a model that is made the weights of a file (`model.weights`), new ones where `model.reinitialize` says so, and
/// takes what `model.freeze` names out of what is trained. Throws UserError where a pattern matches nothing, or nothing
/// is left to train.
void start_weights(Model& model, const ModelConfiguration& configuration, std::uint64_t seed);

/// How much of it is trained, where `model.freeze` leaves some of it as it is; else empty.
std::string trained_part(const Model& model, const ModelConfiguration& configuration);

}  // namespace onebatch
