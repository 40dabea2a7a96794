// Commands that one process does: MPI is not started, and no other rank takes part.
#pragma once

#include "launch/command_line.hpp"

#include <optional>

namespace onebatch::launch {

/// Runs `data`, `check`, `compile`, `export`, `report`, `init`, `launch`, `info --keys` and `doctor`, which starts MPI
/// itself where there are ranks, and returns the exit code; none: it is another command. Never throws.
std::optional<int> run_alone(const Arguments& arguments);

}  // namespace onebatch::launch
