// A tape cut into segments, each of which can run alone, with or without gradients.
#pragma once

#include "trainer/graph/tape.hpp"

#include <optional>
#include <set>

namespace onebatch {

/// Calls [begin, end) of a tape.
struct Segment {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool begins_with_batch_norm = false;  // then the call before `begin`: its input is `input`, what it makes is `output`
  std::size_t batch_norm = 0;           // that call's index
  Value input = k_no_value;
  Value output = k_no_value;
  std::vector<Value> takes;                  // from other segments; its BatchNorm's output too, where it reads it
  std::vector<Value> gives;                  // to later segments; may include its BatchNorm's output
  std::vector<Value> changes;                // what it takes and writes to through a view
  std::vector<Value> releases;               // what it takes, its BatchNorm's input too, and no earlier segment does
  std::vector<Value> shared;                 // parameters that it reads and other segments do too
  std::vector<std::vector<Value>> finished;  // by call: values made here that nobody reads after it
};

/// Cuts before every BatchNorm that takes statistics of its batch. Throws CannotCapture where a call writes into memory
/// that another segment reads through another tensor.
std::vector<Segment> cut_at_batch_norms(const Tape& tape);

/// Cuts where little goes from one side to the other, into about as many segments as are asked for, each of which holds
/// about as much inside; 0: as many as take the least memory together with what is kept between them. Throws as the
/// other does.
std::vector<Segment> cut_for_memory(const Tape& tape, std::int64_t num_segments);

/// Of each parameter, the segment that reads it, with its BatchNorm; none where none does, or several.
std::vector<std::optional<std::size_t>> only_readers(const Tape& tape, const std::vector<Segment>& segments,
                                                     const std::vector<at::Tensor>& parameters);

/// Runs a segment. `taken` holds what it takes; what it makes, and nothing else, is returned, without what is
/// `finished`. What it would overwrite of another's is cloned, but for the values in `own`.
Environment run_segment(const Tape& tape, const Segment& segment, Playing playing, const Environment& taken,
                        const std::set<Value>& own = {});

}  // namespace onebatch
