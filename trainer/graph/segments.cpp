#include "trainer/graph/segments.hpp"

#include <algorithm>
#include <numeric>

namespace onebatch {
namespace {

constexpr std::size_t k_never = SIZE_MAX;

// Where each value is made and last read, by call; values of the tape's beginning are made "never".
struct Uses {
  explicit Uses(const Tape& tape) : made(tape.values.size(), k_never), last_read(tape.values.size(), 0) {
    for (std::size_t i = 0; i < tape.calls.size(); ++i) {
      for_each_made(tape.calls[i], [&](Value value) { at(made, value) = i; });
      for_each_read(tape.calls[i], [&](Value value) { at(last_read, value) = i; });
    }
    at(last_read, tape.loss) = tape.calls.size();
  }

  static std::size_t& at(std::vector<std::size_t>& calls, Value value) {
    return calls[static_cast<std::size_t>(value)];
  }
  [[nodiscard]] std::size_t made_by(Value value) const { return made[static_cast<std::size_t>(value)]; }
  [[nodiscard]] std::size_t last_read_by(Value value) const { return last_read[static_cast<std::size_t>(value)]; }

  std::vector<std::size_t> made;
  std::vector<std::size_t> last_read;
};

std::vector<Segment> cut(const Tape& tape) {
  std::vector<Segment> segments(1);
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    const TapeCall& call = tape.calls[i];
    if (!is_batch_norm(call) || !call.of_samples) continue;
    segments.back().end = i;
    Segment next;
    next.begin = i + 1;
    next.begins_with_batch_norm = true;
    next.batch_norm = i;
    next.input = call.arguments[0].values.front();
    next.output = call.results[0].front();
    segments.push_back(next);
  }
  segments.back().end = tape.calls.size();
  return segments;
}

void find_values(const Tape& tape, const Uses& uses, Segment& segment) {
  std::set<Value> takes;
  std::set<Value> gives;
  segment.finished.resize(segment.end - segment.begin);
  const auto inside = [&](Value value) {
    const std::size_t made = uses.made_by(value);
    return made != k_never && made >= segment.begin && made < segment.end;
  };
  for (std::size_t i = segment.begin; i < segment.end; ++i) {
    const auto note_last = [&](Value value) {
      if (inside(value) && uses.last_read_by(value) <= i) segment.finished[i - segment.begin].push_back(value);
    };
    for_each_read(tape.calls[i], [&](Value value) {
      if (!inside(value) && !tape.live.contains(value)) takes.insert(value);
      if (uses.last_read_by(value) == i) note_last(value);
    });
    for_each_made(tape.calls[i], [&](Value value) {
      if (uses.last_read_by(value) >= segment.end) gives.insert(value);
      if (uses.last_read_by(value) <= i) note_last(value);
    });
  }
  if (segment.begins_with_batch_norm && uses.last_read_by(segment.output) >= segment.end) gives.insert(segment.output);
  segment.takes.assign(takes.begin(), takes.end());
  segment.gives.assign(gives.begin(), gives.end());
}

// Their gradients are summed before they are added to what is there, as a whole backward does it: else the bits are
// others.
void find_shared(const Tape& tape, std::vector<Segment>& segments) {
  std::unordered_map<Value, std::set<std::size_t>> readers;
  for (std::size_t s = 0; s < segments.size(); ++s) {
    for (std::size_t i = segments[s].begin; i < segments[s].end; ++i) {
      for_each_read(tape.calls[i], [&](Value value) {
        if (tape.live.contains(value) && tape.values[static_cast<std::size_t>(value)].requires_grad)
          readers[value].insert(s);
      });
    }
  }
  for (const auto& [value, by] : readers) {
    if (by.size() < 2) continue;
    for (const std::size_t s : by) segments[s].shared.push_back(value);
  }
}

void find_releases(std::vector<Segment>& segments) {
  std::set<Value> taken;
  for (Segment& segment : segments) {
    const auto release = [&](Value value) {
      if (value != k_no_value && value != segment.output && taken.insert(value).second)
        segment.releases.push_back(value);
    };
    release(segment.input);
    for (const Value value : segment.takes) release(value);
  }
}

// A write through a view of what another segment has made, which is kept, and may be taken again.
void note_change(Segment& segment, Value changed) {
  if (changed != segment.output && std::ranges::find(segment.takes, changed) != segment.takes.end() &&
      std::ranges::find(segment.changes, changed) == segment.changes.end())
    segment.changes.push_back(changed);
}

// Versions follow a tensor, not its memory: a write through one view is not seen by another, except where both live in
// one segment.
void find_hidden_writes(const Tape& tape, const Uses& uses, std::vector<Segment>& segments) {
  std::vector<std::size_t> segment_of(tape.calls.size(), 0);
  for (std::size_t s = 0; s < segments.size(); ++s) {
    for (std::size_t i = segments[s].begin; i < segments[s].end; ++i) segment_of[i] = s;
  }
  std::unordered_map<const void*, std::vector<Value>> sharing;
  for (std::size_t v = 0; v < tape.values.size(); ++v) {
    if (tape.values[v].storage != nullptr) sharing[tape.values[v].storage].push_back(static_cast<Value>(v));
  }
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    const TapeCall& call = tape.calls[i];
    for (const TapeArgument& argument : call.arguments) {
      if (!argument.written) continue;
      const Value target = argument.values.front();
      const auto& made = call.writes;
      const auto target_made = uses.made_by(target);
      for (const Value other : sharing[tape.values[static_cast<std::size_t>(target)].storage]) {
        if (other == target || std::find(made.begin(), made.end(), other) != made.end()) continue;
        const std::size_t other_made = uses.made_by(other);
        const bool before = other_made == k_never || other_made < i;
        if (before) note_change(segments[segment_of[i]], other);
        if (!before || uses.last_read_by(other) <= i) continue;
        const bool together = other_made != k_never && target_made != k_never &&
                              segment_of[other_made] == segment_of[i] && segment_of[target_made] == segment_of[i] &&
                              uses.last_read_by(other) < segments[segment_of[i]].end;
        if (together) continue;
        throw CannotCapture("the model cannot be taken apart for exact or synchronised BatchNorm or recomputation: " +
                            tape.values[static_cast<std::size_t>(made.front())].made_by +
                            ", writes through a view into memory that another part of the model still reads (made by " +
                            tape.values[static_cast<std::size_t>(other)].made_by + "): write out of place there");
      }
    }
  }
}

std::vector<Segment> complete(const Tape& tape, const Uses& uses, std::vector<Segment> segments) {
  for (Segment& segment : segments) find_values(tape, uses, segment);
  find_releases(segments);
  find_shared(tape, segments);
  find_hidden_writes(tape, uses, segments);
  return segments;
}

// Bytes, by call: what a cut before it would keep, and what the calls before it have made.
struct MemoryByCall {
  std::vector<std::int64_t> crossing;
  std::vector<std::int64_t> made;

  MemoryByCall(const Tape& tape, const Uses& uses)
      : crossing(tape.calls.size() + 1, 0), made(tape.calls.size() + 1, 0) {
    for (std::size_t v = 0; v < tape.values.size(); ++v) {
      const auto value = static_cast<Value>(v);
      const std::size_t begin = uses.made_by(value) == k_never ? 0 : uses.made_by(value) + 1;
      if (tape.live.contains(value)) continue;
      for (std::size_t i = begin; i <= std::min(uses.last_read_by(value), tape.calls.size()); ++i)
        crossing[i] += tape.values[v].bytes;
      if (uses.made_by(value) != k_never) made[begin] += tape.values[v].bytes;
    }
    std::partial_sum(made.begin(), made.end(), made.begin());
  }
};

// Each cut near its share of what is made, where the least crosses.
std::vector<std::size_t> cuts_of(const MemoryByCall& memory, std::int64_t num_segments) {
  std::vector<std::size_t> cuts;
  const double total = static_cast<double>(memory.made.back());
  const auto call_at = [&](double share) {
    return static_cast<std::size_t>(
        std::lower_bound(memory.made.begin(), memory.made.end(), static_cast<std::int64_t>(share * total)) -
        memory.made.begin());
  };
  for (std::int64_t k = 1; k < num_segments; ++k) {
    const double half = 0.5 / static_cast<double>(num_segments);
    const double middle = 2.0 * half * static_cast<double>(k);
    const std::size_t first = std::max<std::size_t>(call_at(middle - half), cuts.empty() ? 1 : cuts.back() + 1);
    const std::size_t last = std::min(call_at(middle + half), memory.made.size() - 2);
    if (first > last) continue;
    const auto least = std::min_element(memory.crossing.begin() + static_cast<std::ptrdiff_t>(first),
                                        memory.crossing.begin() + static_cast<std::ptrdiff_t>(last) + 1);
    cuts.push_back(static_cast<std::size_t>(least - memory.crossing.begin()));
  }
  return cuts;
}

std::int64_t bytes_needed(const MemoryByCall& memory, const std::vector<std::size_t>& cuts) {
  std::int64_t kept = 0;
  std::int64_t largest = 0;
  std::size_t begin = 0;
  for (const std::size_t cut_at : cuts) {
    kept += memory.crossing[cut_at];
    largest = std::max(largest, memory.made[cut_at] - memory.made[begin]);
    begin = cut_at;
  }
  return kept + std::max(largest, memory.made.back() - memory.made[begin]);
}

}  // namespace

std::vector<Segment> cut_for_memory(const Tape& tape, std::int64_t num_segments) {
  constexpr std::int64_t k_most = 64;
  const Uses uses(tape);
  const MemoryByCall memory(tape, uses);
  std::vector<std::size_t> cuts = cuts_of(memory, num_segments);
  for (std::int64_t n = 2; num_segments == 0 && n <= k_most; ++n) {
    const auto more = cuts_of(memory, n);
    if (bytes_needed(memory, more) < bytes_needed(memory, cuts)) cuts = more;
  }
  std::vector<Segment> segments;
  cuts.push_back(tape.calls.size());
  for (const std::size_t end : cuts) {
    Segment segment;
    segment.begin = segments.empty() ? 0 : segments.back().end;
    segment.end = end;
    segments.push_back(segment);
  }
  return complete(tape, uses, segments);
}

std::vector<Segment> cut_at_batch_norms(const Tape& tape) {
  return complete(tape, Uses(tape), cut(tape));
}
Environment run_segment(const Tape& tape, const Segment& segment, Playing playing, const Environment& taken,
                        const std::set<Value>& own) {
  Environment made;
  const auto get = [&](Value value) -> at::Tensor {
    if (const auto here = made.find(value); here != made.end()) return here->second;
    if (const auto given = taken.find(value); given != taken.end()) return given->second;
    return tape.live.at(value);
  };
  const auto get_to_write = [&](Value value) -> at::Tensor {
    if (const auto here = made.find(value); here != made.end()) return here->second;
    return own.contains(value) ? get(value) : get(value).clone();
  };
  for (std::size_t i = segment.begin; i < segment.end; ++i) {
    play(tape.calls[i], playing, get, get_to_write, made);
    for (const Value value : segment.finished[i - segment.begin]) made.erase(value);
  }
  return made;
}

}  // namespace onebatch
