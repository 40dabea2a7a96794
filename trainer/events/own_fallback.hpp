// A fallback that one rank may have taken and others not.
#pragma once

#include "comm/communicator.hpp"
#include "trainer/events/event_stream.hpp"

namespace onebatch {

/// `done`: what this rank did instead of what was asked for; empty: what was asked for. That of the first rank that
/// fell back is said, or refused by all. Collective.
void own_fallback(EventStream& events, comm::Communicator& control, const std::string& asked, const std::string& done);

}  // namespace onebatch
