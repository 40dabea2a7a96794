// `onebatch compile`: an exported program as native code, by a Python that has PyTorch's compiler.
#pragma once

#include "launch/command_line.hpp"
#include "trainer/base/error.hpp"

#include <string>

namespace onebatch::launch {

/// What Python has said already, so that only the exit code is left.
struct HasSaidWhy {
  ExitCode code;
};

/// Runs `python -m onebatch compile` and passes on what it says. Returns the document. Throws UserError where no Python
/// fits, HasSaidWhy where compiling failed.
std::string compile_program(const Arguments& arguments);

}  // namespace onebatch::launch
