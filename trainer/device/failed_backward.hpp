// What a backward that threw leaves behind.
#pragma once

#include <c10/core/Device.h>

namespace onebatch {

/// After an exception autograd's ready queue of this device still holds the tasks that were not run, and with them the graph and its saved
/// activations. They are dropped only when they are popped, and later backwards are done before that. This runs a backward of lowest
/// priority, so that all of them are popped and their memory is free. Call it outside the `catch`.
void release_failed_backward(c10::Device device);

}  // namespace onebatch
