// Doubles of the NCCL and CUDA runtime calls that the NCCL communicator makes: host memory, real ranks, faults on
// request.
#pragma once

namespace onebatch::testing {

enum class Fault { none, fail, hang, disagree };

/// The `nth` collective from now on (1-based) on this rank fails, never ends or answers wrong.
void plan_fault(Fault fault, int nth);
/// Communicators that were aborted, and destroyed in order, so far.
int aborted_communicators();
int destroyed_communicators();

}  // namespace onebatch::testing
