// What a backward that threw leaves behind.
#pragma once

#include "trainer/device/compute_device.hpp"

#include <functional>

namespace onebatch {

/// After an exception autograd's ready queue of this device still holds the tasks that were not run, and with them the
/// graph and its saved activations. They are dropped only when they are popped, and later backwards are done before
/// that. This runs a backward of lowest priority, so that all of them are popped and their memory is free. Call it
/// outside the `catch`.
void release_failed_backward(c10::Device device);

/// All that a forward and backward which ran out of memory may hold is free afterwards, for the device too. Call it
/// outside the `catch`.
void recover_from_out_of_memory(ComputeDevice& device);

/// Does the work. False where it ran out of memory, from which the device has recovered by then: the exception, which
/// would keep tensors alive, is gone.
bool fits(ComputeDevice& device, const std::function<void()>& work);

}  // namespace onebatch
