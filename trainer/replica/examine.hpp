// Finds what a model does in training that nobody has told, by watching ordinary forwards of a few samples.
#pragma once

#include "trainer/base/configuration.hpp"
#include "trainer/data/dataset.hpp"
#include "trainer/graph/examination.hpp"

namespace onebatch {

/// Runs a private copy of the configuration's model on the host, in its own type, on up to four samples of the data.
/// Throws UserError where data and model do not fit together. Not collective.
Examination examine(const Configuration& configuration, const Dataset& data);

}  // namespace onebatch
