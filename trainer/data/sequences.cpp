#include "trainer/data/sequences.hpp"

#include "trainer/base/error.hpp"
#include "trainer/data/ragged.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace onebatch {
namespace {

// The samples of one piece, from its offsets.
void add_piece(Sequences& to, std::span<const std::int64_t> offsets, const std::string& file, const std::string& name) {
  if (const auto wrong = wrong_offsets(offsets)) throw UserError(fmt::format("{}: {} {}", file, name, *wrong));
  const std::int64_t before = std::accumulate(to.values_of.begin(), to.values_of.end(), std::int64_t{0});
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
    to.lengths.push_back(offsets[i + 1] - offsets[i]);
    to.runs.push_back({before + offsets[i], to.lengths.back()});
  }
  to.samples_of.push_back(static_cast<std::int64_t>(offsets.size()) - 1);
  to.values_of.push_back(offsets.back());
}

}  // namespace

Sequences read_sequences(const std::vector<TensorPiece>& pieces, const std::string& name) {
  const TensorColumn column(pieces, name, "data.offsets");
  if (column.floating() || column.shape().size() != 1)
    throw UserError(column.file_of(0) + ": " + column.name() + " must be whole numbers, [samples + 1]");
  const auto all = column.integers();
  Sequences sequences;
  std::size_t begin = 0;
  for (std::size_t piece = 0; piece < pieces.size(); ++piece) {
    const auto count = static_cast<std::size_t>(column.rows_of(piece));
    add_piece(sequences, std::span(all).subspan(begin, count), column.file_of(piece), column.name());
    begin += count;
  }
  return sequences;
}

std::int64_t sample_of(const Sequences& sequences, std::int64_t row) {
  return std::ranges::upper_bound(sequences.runs, row, {}, &RowRun::first) - sequences.runs.begin() - 1;
}

}  // namespace onebatch
