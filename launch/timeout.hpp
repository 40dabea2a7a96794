// How long ranks wait for each other, before anything else is known.
#pragma once

#include "launch/command_line.hpp"

namespace onebatch::launch {

/// comm.timeout_seconds. Before ranks have met, each finds it out for itself; where the configuration cannot be read it
/// is the default: mistakes are told later, by all together.
double timeout_seconds_of(const Arguments& arguments);

}  // namespace onebatch::launch
