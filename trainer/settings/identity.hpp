// What of a configuration decides whether a checkpoint is this run's, and whether the probe's answer is of the same
// question.
#pragma once

#include "trainer/base/configuration.hpp"

#include <map>
#include <string>

namespace onebatch {

/// A checksum; "none" without them.
constexpr const char* k_given_samples = "what data.subset and data.sample_weights hold";
/// Of what they are and hold, where the data lie in files.
constexpr const char* k_data_digest = "the training data's digest";
/// Likewise of the model, where its computation lies in a file.
constexpr const char* k_program_digest = "the digest of model.path's program";

/// What a run that goes on must share with its checkpoint, by key; of kinds those of the one that is chosen.
std::map<std::string, std::string> identity_of_run(const Configuration& configuration);

/// A line each, for a person: which keys of `now` the checkpoint's identity has otherwise. What earlier versions wrote
/// is understood.
std::string identity_differences(const std::map<std::string, std::string>& saved,
                                 const std::map<std::string, std::string>& now);

/// All that memory and time of a micro-batch depend on, as one text.
std::string identity_of_probe(const Configuration& configuration);

}  // namespace onebatch
