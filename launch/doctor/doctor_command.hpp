// `onebatch doctor`: what is wrong here, why that matters, and what mends it.
#pragma once

#include "launch/command_line.hpp"

namespace onebatch::launch {

/// Looks at this machine and tries ranks on it; started by a launcher, at the machines of all ranks. Returns the exit
/// code: 1 where something is broken. Never throws.
int doctor(const Arguments& arguments);

}  // namespace onebatch::launch
