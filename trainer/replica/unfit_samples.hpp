// What is said of samples that a model does not take.
#pragma once

#include "trainer/base/configuration.hpp"
#include "trainer/data/dataset.hpp"

#include <exception>
#include <string>

namespace onebatch {

/// What went wrong in a forward, without stacks.
std::string own_words(const std::exception& error);

/// Whether a forward's words are those of an embedding whose table has no row of a number: known on the host alone, a
/// GPU has only an assertion for it.
bool is_outside_a_table(const std::string& words);

/// Throws UserError with the files, the samples' types and shapes, the model's words, and what to change.
[[noreturn]] void refuse_samples(const Batch& batch, const Dataset& data, const Configuration& configuration,
                                 const std::string& words);

}  // namespace onebatch
