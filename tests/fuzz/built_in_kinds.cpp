#include "trainer/run/built_in_kinds.hpp"

#include "tests/fuzz/config_check.hpp"

namespace onebatch::fuzz {

void register_kinds() {
  register_built_in_kinds();
}

}  // namespace onebatch::fuzz
