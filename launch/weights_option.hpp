// --weights, of the commands that take a checkpoint's weights.
#pragma once

#include "trainer/base/weights_choice.hpp"

#include <string>
#include <vector>

namespace onebatch::launch {

inline const std::vector<std::string> k_weights_words = {"raw", "ema"};

/// `word`: one of those, or empty.
inline WeightsChoice weights_choice(const std::string& word) {
  if (word.empty()) return WeightsChoice::automatic;
  return word == "raw" ? WeightsChoice::raw : WeightsChoice::averaged;
}

}  // namespace onebatch::launch
