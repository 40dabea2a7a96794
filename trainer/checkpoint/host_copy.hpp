// A copy in host memory of what a checkpoint holds, which training may change meanwhile.
#pragma once

#include "trainer/checkpoint/checkpoint_contents.hpp"
#include "trainer/models/model.hpp"

#include <memory>

namespace onebatch {

/// The tensors of a checkpoint where they are trained.
struct LiveState {
  std::vector<NamedTensor> model;
  std::vector<NamedTensor> optimizer;
  std::vector<NamedTensor> buffers;     // of all ranks, by rank
  std::vector<NamedTensor> generators;  // of all ranks, by rank
};

/// Holds one copy at a time. Its memory is that of the largest so far, and is used again; no memory limit of a device counts it.
class HostCopy {
 public:
  /// Of a copy: each tensor once, however many names it has.
  [[nodiscard]] static std::size_t bytes_needed(const LiveState& live);

  /// Copies in the place of what was there. The contents' bytes lie in this object. Throws std::bad_alloc.
  [[nodiscard]] CheckpointContents take(RunState state, const LiveState& live);
  [[nodiscard]] std::size_t capacity_bytes() const { return capacity_; }

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::size_t capacity_ = 0;
};

}  // namespace onebatch
