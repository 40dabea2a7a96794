// `onebatch check`: looks at an exported program, or runs it once.
#pragma once

#include "launch/command_line.hpp"

#include <string>

namespace onebatch::launch {

/// Without --inputs: prints what the program takes, returns and holds. With --inputs: runs it once, and writes what it
/// computes to --save. Returns the document. Throws UserError.
std::string check_program(const Arguments& arguments);

}  // namespace onebatch::launch
