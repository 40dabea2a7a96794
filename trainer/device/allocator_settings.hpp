// What LibTorch's allocator on a CUDA GPU is told: a text of options, "max_split_size_mb:128,expandable_segments:True".
#pragma once

#include "trainer/base/configuration.hpp"

#include <string>
#include <vector>

namespace onebatch {

struct AllocatorSettings {
  std::string text;                     // empty: as it is without
  std::vector<std::string> overridden;  // parts of what was given that the configuration has otherwise
};

/// The configuration's options, behind what was given to the process that the configuration does not have.
AllocatorSettings allocator_settings(const MemoryConfiguration& memory, const std::string& given);

/// What the environment gives: PYTORCH_CUDA_ALLOC_CONF, or where that is not set PYTORCH_ALLOC_CONF.
struct GivenToAllocator {
  std::string variable;  // empty: neither
  std::string text;
};
GivenToAllocator given_to_allocator();

}  // namespace onebatch
