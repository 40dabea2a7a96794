// The arithmetic of a reduction on host memory. Pure.
#pragma once

#include "comm/communicator.hpp"

#include <span>

namespace onebatch::comm {

/// out[i] = inputs[0][i] op inputs[1][i] op …, evaluated from left to right: an element's bits depend neither on
/// `count` nor on who computes it. Half types are summed in float32 and rounded once. `inputs` is not empty; `out`
/// overlaps none of them.
void reduce_in_order(void* out, std::span<const void* const> inputs, std::size_t count, ScalarType type, ReduceOp op);

/// The same, written to every one of `buffers`, which are the inputs.
void reduce_in_place(std::span<void* const> buffers, std::size_t count, ScalarType type, ReduceOp op);

}  // namespace onebatch::comm
