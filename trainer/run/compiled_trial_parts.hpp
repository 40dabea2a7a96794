// What a comparison and a timing of native code both need.
#pragma once

#include "trainer/replica/replica.hpp"

#include <cstdint>
#include <vector>

namespace onebatch {

/// Weights and buffers, which are afterwards as they were, and no gradient is left. They lie on the host meanwhile.
class KeptWeights {
 public:
  explicit KeptWeights(Replica& replica);
  ~KeptWeights();
  KeptWeights(const KeptWeights&) = delete;
  KeptWeights& operator=(const KeptWeights&) = delete;

  void restore() const;

 private:
  Replica& replica_;
  std::vector<NamedTensor> tensors_;
  std::vector<at::Tensor> before_;
};

std::vector<std::int64_t> first_samples(std::int64_t count, const Dataset& data);

/// As the first epoch changes them.
Batch batch_of(const Replica& replica, const Dataset& data, const std::vector<std::int64_t>& samples);

}  // namespace onebatch
