// `onebatch init`: a configuration with comments for the data that it finds.
#pragma once

#include "launch/command_line.hpp"

#include <string>

namespace onebatch::launch {

/// Returns the document. Throws UserError; a file that is there already stays as it is.
std::string init(const Arguments& arguments);

}  // namespace onebatch::launch
