// What each command does, and how its end becomes an exit code.
#pragma once

#include "launch/command_line.hpp"

namespace onebatch::launch {

/// Runs a command on this process's ranks and returns its exit code. Never throws.
int run(const Arguments& arguments);

}  // namespace onebatch::launch
