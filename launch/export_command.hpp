// `onebatch export`: a trained model under its names, for Python.
#pragma once

#include "launch/command_line.hpp"

#include <string>

namespace onebatch::launch {

/// Writes --to from RUN, a run's folder or a checkpoint's, or from --checkpoint of the configuration that stands in its
/// place. Returns the document. Throws UserError.
std::string export_model(const Arguments& arguments);

}  // namespace onebatch::launch
