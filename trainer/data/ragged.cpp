#include "trainer/data/ragged.hpp"

#include <fmt/format.h>

namespace onebatch {

std::optional<std::string> wrong_offsets(std::span<const std::int64_t> offsets) {
  if (offsets.size() < 2) return "holds no sequence: it has one number more than there are sequences";
  if (offsets[0] != 0) return fmt::format("begins with {}, not with 0", offsets[0]);
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
    if (offsets[i + 1] <= offsets[i])
      return fmt::format("goes from {} to {}: sequence {} would hold nothing", offsets[i], offsets[i + 1], i);
  }
  return std::nullopt;
}

}  // namespace onebatch
