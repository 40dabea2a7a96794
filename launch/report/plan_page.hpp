// Plans that belong to no run, as pages: who computes when, and how clusters compare.
#pragma once

#include "trainer/base/plan.hpp"
#include "trainer/plan/elsewhere/sweep.hpp"

#include <string>
#include <vector>

namespace onebatch::launch::report {

/// The HTML document of a plan; `name`: what it is the plan of.
std::string plan_page(const EpochPlan& plan, const std::string& name, const std::string& drawn_at);
/// The HTML document of a comparison: curves over the global batch, a line for each cluster, and the figures.
std::string comparison_page(const std::vector<SweepPoint>& points, const std::string& drawn_at);

}  // namespace onebatch::launch::report
