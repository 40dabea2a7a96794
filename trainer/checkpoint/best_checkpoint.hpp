// Which of a run's checkpoints is the best one: checkpoints/best leads to it, and best.json says by what. No LibTorch
// here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace onebatch {

struct BestMark {
  bool operator==(const BestMark&) const = default;

  std::int64_t step = 0;
  std::string metric;
  double value = 0.0;
};

/// That, or where it is taken the first of wanted-2, wanted-3, … that is not.
std::filesystem::path free_name(const std::filesystem::path& wanted);

/// Replaces the link `name` in a folder of checkpoints by one to `target` in it, in one step. A folder of that name, as
/// a copy that followed links has made, makes way.
void point_link_at(const std::filesystem::path& checkpoints, const std::string& name,
                   const std::filesystem::path& target);

/// The checkpoint of that step, which has to be there, is the best from now on: it stays until another one is.
void mark_best(const std::filesystem::path& checkpoints, const BestMark& mark);
/// Nothing but the mark goes.
void unmark_best(const std::filesystem::path& checkpoints);
/// The step of the best; none where there is none.
std::optional<std::int64_t> marked_best(const std::filesystem::path& checkpoints);
/// The whole mark; none where the link and best.json do not say the same.
std::optional<BestMark> read_mark(const std::filesystem::path& checkpoints);

/// The number of a step-N folder; none for every other name.
std::optional<std::int64_t> step_of_checkpoint(const std::filesystem::path& folder);

}  // namespace onebatch
