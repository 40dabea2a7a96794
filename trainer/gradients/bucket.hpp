// A stretch of a flat buffer.
#pragma once

#include <cstdint>

namespace onebatch {

/// In elements; reduced in one call, or where a parameter lies.
struct Bucket {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

}  // namespace onebatch
