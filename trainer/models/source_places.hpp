// The places in Python's source that the operators of a TorchScript archive come from. LibTorch looks them up when it
// says an error, and takes what the archive says of them on trust. No LibTorch here.
#pragma once

#include "trainer/io/pickled_tensors.hpp"

namespace onebatch {

/// The value of a .debug_pkl, old format or new, is what LibTorch reads: every piece of text is in its table, every
/// place in its text. Throws std::runtime_error with what is wrong.
void check_source_places(const PickledValue& places);

}  // namespace onebatch
