// Running statistics of local BatchNorm: each rank has its own, a whole model has their average.
#pragma once

#include "comm/communicator.hpp"
#include "trainer/models/model.hpp"

namespace onebatch {

/// Statistics averaged over ranks, weighted by `weight` (samples of this rank's share; all zero: rank 0's), in fp64;
/// whole numbers are the largest of all ranks. A rank of weight 0 adds nothing, whatever it has. New tensors, in the
/// order given. Collective.
std::vector<NamedTensor> average_statistics(const std::vector<NamedTensor>& statistics, double weight,
                                            comm::Communicator& control);

/// While it lives the model has the average of Replica::own_statistics(), afterwards its own again: for evaluation and
/// saving. The constructor is collective.
class AveragedStatistics {
 public:
  AveragedStatistics(const std::vector<NamedTensor>& own_statistics, double weight, comm::Communicator& control);
  ~AveragedStatistics();
  AveragedStatistics(const AveragedStatistics&) = delete;
  AveragedStatistics& operator=(const AveragedStatistics&) = delete;

  /// This rank's own, as they were.
  [[nodiscard]] const std::vector<NamedTensor>& own() const { return own_; }

 private:
  std::vector<NamedTensor> live_;
  std::vector<NamedTensor> own_;
};

}  // namespace onebatch
