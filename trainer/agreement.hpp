// Work that may fail on one rank alone, done so that no rank waits for one that has failed. See Note [Nobody waits for the dead].
#pragma once

#include "comm/communicator.hpp"

#include <functional>

namespace onebatch {

/// Runs `work` on every rank. Where it threw on any, every rank throws AgreedError with the first failing rank's words and exit code.
/// `work` itself must not be collective. Collective.
void agree(comm::Communicator& control, const std::function<void()>& work);

}  // namespace onebatch
