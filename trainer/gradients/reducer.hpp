// Sums the flat gradient over all ranks: once per optimizer step, in one fixed order. See Note [Gradient communication does not depend on
// accumulation].
#pragma once

#include "comm/communicator.hpp"
#include "trainer/gradients/flat_gradients.hpp"

namespace onebatch {

class GradientReducer {
 public:
  /// `communicator` works on the memory in which the gradient lives, or on host memory: then the gradient is carried through it.
  GradientReducer(comm::Communicator& communicator, std::int64_t bucket_cap_bytes);

  /// Collective. Afterwards every rank's buffer holds the same sum, bit for bit.
  void all_reduce(const at::Tensor& flat);

 private:
  comm::Communicator& communicator_;
  std::int64_t bucket_cap_bytes_;
};

/// The communication layer's word for an element type. Throws std::invalid_argument for one that it has no word for.
comm::ScalarType comm_type(at::ScalarType type);

}  // namespace onebatch
