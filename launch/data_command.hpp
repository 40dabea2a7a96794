// `onebatch data`: what a configuration's data are, before anything is trained with them.
#pragma once

#include "launch/command_line.hpp"

#include <string>

namespace onebatch::launch {

/// Prints what there is to say and returns it as a document; writes the sheet of images where one was asked for. Throws
/// UserError.
std::string describe_data(const Arguments& arguments);

}  // namespace onebatch::launch
