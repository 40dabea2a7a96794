// Plans as pictures.
#pragma once

#include "trainer/base/plan.hpp"

#include <string>
#include <vector>

namespace onebatch {

struct TitledPlan {
  std::string title;
  Plan plan;
};

/// Who computes when: a row per rank and a bar per micro-batch, on one scale of time for all plans. At most
/// `k_most_rows` ranks of each.
std::string plan_svg(const std::vector<TitledPlan>& plans);
inline constexpr std::size_t k_most_rows = 64;

}  // namespace onebatch
