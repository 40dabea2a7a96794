// A copy in host memory of what a checkpoint holds, which training may change meanwhile.
#pragma once

#include "trainer/checkpoint/checkpoint_contents.hpp"
#include "trainer/models/model.hpp"

#include <memory>
#include <vector>

namespace onebatch {

/// The tensors of a checkpoint where they are trained.
struct LiveState {
  std::vector<NamedTensor> model;
  std::vector<NamedTensor> optimizer;
  std::vector<NamedTensor> buffers;     // of all ranks, by rank
  std::vector<NamedTensor> generators;  // of all ranks, by rank
  /// Those of the model and the optimizer that nothing but an update writes to: their copying may wait. All others, as
  /// running statistics, change in forwards.
  std::vector<NamedTensor> still = {};
};

/// A tensor that is to be copied, and where to.
struct PendingCopy {
  at::Tensor from;
  at::Tensor to;
};

/// In the order of the list, on a stream of its own where the device has streams, and to its end. Any thread; all work
/// on `from` has to be done. May throw what LibTorch throws.
void finish_copies(const std::vector<PendingCopy>& pending);

/// Holds one copy at a time. Its memory is that of the largest so far, and is used again; no memory limit of a device
/// counts it.
class HostCopy {
 public:
  /// Of a copy: each tensor once, however many names it has.
  [[nodiscard]] static std::size_t bytes_needed(const LiveState& live);

  struct Taken {
    CheckpointContents contents;       // their bytes lie in this object
    std::vector<PendingCopy> pending;  // before these have been copied, not all of them are there
  };
  /// Copies in the place of what was there, all but what may wait. Throws std::bad_alloc.
  [[nodiscard]] Taken take(RunState state, const LiveState& live);
  [[nodiscard]] std::size_t capacity_bytes() const { return capacity_; }

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::size_t capacity_ = 0;
};

}  // namespace onebatch
