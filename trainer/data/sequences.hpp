// Sequences that lie one after another in tensors of several files, without padding: which rows are whose.
#pragma once

#include "trainer/data/tensor_column.hpp"

namespace onebatch {

struct Sequences {
  std::vector<RowRun> runs;              // by sample; of columns that are values
  std::vector<std::int64_t> lengths;     // by sample
  std::vector<std::int64_t> samples_of;  // by piece
  std::vector<std::int64_t> values_of;   // by piece
};

/// From the offsets that each piece has under `name`. Throws UserError where they are none.
Sequences read_sequences(const std::vector<TensorPiece>& pieces, const std::string& name);

/// The sample whose value this is.
std::int64_t sample_of(const Sequences& sequences, std::int64_t row);

}  // namespace onebatch
