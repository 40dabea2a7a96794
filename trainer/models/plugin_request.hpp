// What a plugin's factory is told.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace onebatch {

struct PluginRequest {
  std::vector<std::int64_t> sample_shape;  // of the data's first input: [C, H, W] or [D]
  std::int64_t num_classes = 0;            // of the outputs; 0 where targets are numbers
  std::string options;                     // model.options, as it stands there
  std::uint64_t seed = 1;                  // LibTorch's generator has it when the factory is called
};

}  // namespace onebatch
