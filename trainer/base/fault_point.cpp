#include "trainer/base/fault_point.hpp"

namespace onebatch {

std::int64_t fault_point(const char* /*place*/, std::int64_t /*number*/) {
  return 0;
}

}  // namespace onebatch
