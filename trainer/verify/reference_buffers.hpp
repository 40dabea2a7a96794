// Buffers against those that a reference has: an infinity, as masks hold it, is a value like another.
#pragma once

#include "trainer/verify/difference.hpp"

namespace onebatch {

struct BufferDifference {
  // Of all together; infinity where one differs by more than rounding: in whole numbers, or in what is finite.
  double relative_l2 = 0.0;
  std::string worst;  // the buffer that differs most, relative to itself; empty where none does
};

/// Of the same buffers, in the same order, but those `left_out`.
BufferDifference difference_of_buffers(const std::vector<NamedTensor>& ours, const std::vector<NamedTensor>& exact,
                                       const std::vector<std::string>& left_out = {});

}  // namespace onebatch
