// Running statistics of local BatchNorm: each rank has its own, a whole model has their average.
#pragma once

#include "comm/communicator.hpp"
#include "trainer/models/model.hpp"

namespace onebatch {

/// Floating-point buffers averaged over ranks, weighted by `weight` (samples of this rank's share; all zero: rank 0's), in fp64; integer
/// buffers are the largest of all ranks. New tensors, in the order of `buffers`. Collective.
std::vector<NamedTensor> average_buffers(const std::vector<NamedTensor>& buffers, double weight, comm::Communicator& control);

/// While it lives the model has the averaged buffers, afterwards its own again: for evaluation and saving. The constructor is collective.
class AveragedBuffers {
 public:
  AveragedBuffers(const Model& model, double weight, comm::Communicator& control);
  ~AveragedBuffers();
  AveragedBuffers(const AveragedBuffers&) = delete;
  AveragedBuffers& operator=(const AveragedBuffers&) = delete;

  /// This rank's own, as they were.
  [[nodiscard]] const std::vector<NamedTensor>& own() const { return own_; }

 private:
  std::vector<NamedTensor> live_;
  std::vector<NamedTensor> own_;
};

}  // namespace onebatch
