// Whether a thread that waits keeps its core.
#pragma once

#include <strings.h>

#include <cstdlib>

namespace onebatch::comm {

/// OMP_WAIT_POLICY=passive, as OpenMP has it: who waits leaves the core at once, for what else runs there. Otherwise it
/// stays awake for a while, since what follows is slower on a core that was put to sleep.
inline bool waits_passively() {
  static const char* const policy = std::getenv("OMP_WAIT_POLICY");
  return policy != nullptr && strcasecmp(policy, "passive") == 0;
}

}  // namespace onebatch::comm
