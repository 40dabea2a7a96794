// The configuration that `onebatch init` writes for what it has found.
#pragma once

#include "launch/init/found_data.hpp"

#include <string>
#include <vector>

namespace onebatch::launch {

/// An exported program to train; an empty path: none was given.
struct GivenModel {
  std::string path;
  bool has_own_loss = false;  // it returns a loss's sum and its weight
  std::string length = {};    // of a sample's first dimension, where its first input has one alone
};

/// `name`: of the file, for the commands in its first lines.
std::string written_configuration(const FoundData& found, const GivenModel& model, const std::string& name);

/// In a few words, for a person: "a ResNet-18".
std::string model_words(const FoundData& found, const GivenModel& model);

}  // namespace onebatch::launch
