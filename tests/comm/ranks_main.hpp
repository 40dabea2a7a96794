// What tests that run on several ranks share.
#pragma once

#include "comm/world.hpp"

namespace onebatch::testing {

/// The world of this test program; collectives of a test must be called by all ranks.
comm::World& world();

}  // namespace onebatch::testing
