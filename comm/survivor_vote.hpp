// What the ranks that are left say of their state when one is lost, and what follows from it. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace onebatch::comm {

/// One rank's words: the last step whose update it has finished, and a digest of what it would save of it.
struct Vote {
  static constexpr std::int64_t k_not_whole = -1;

  int rank = 0;
  std::int64_t step = k_not_whole;
  std::array<std::uint64_t, 2> digest{};
  bool can_write = false;  // it sees the run's folder

  bool operator==(const Vote&) const = default;
  /// One line of at most so many bytes, for the side channel; what is no vote's line makes none.
  static constexpr std::size_t k_most_line_bytes = 96;
  [[nodiscard]] std::string to_line() const;
  static std::vector<Vote> from_lines(std::string_view lines);
};

/// What a lone survivor's state rests on: rank 0's is the run's by definition, another's only where replicas are
/// compared.
enum class Replicas { compared, never_compared };

struct Decision {
  int speaker = 0;        // the one rank that says what comes of it, and writes where `why_not` is empty
  std::int64_t step = 0;  // that is to be saved
  std::vector<int> agreeing;
  std::string why_not;
};

/// The newest step that a voter has finished: all who have must have the same state, and the lowest that sees the
/// folder writes. A rank that is a step behind proves nothing against it: a step ends only where every rank has taken
/// part in its sums. None where nobody has voted.
[[nodiscard]] std::optional<Decision> decide(std::vector<Vote> votes, Replicas replicas);

/// "0, 2 and 3".
[[nodiscard]] std::string ranks_text(const std::vector<int>& ranks);

}  // namespace onebatch::comm
