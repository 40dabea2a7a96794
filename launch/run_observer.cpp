#include "launch/run_observer.hpp"

#include "trainer/documents/documents.hpp"
#include "trainer/io/durable_file.hpp"
#include "trainer/plan/plan_svg.hpp"

namespace onebatch::launch {

RunObserver::RunObserver(TerminalOptions options, std::filesystem::path run_dir) : Terminal(options), run_dir_(std::move(run_dir)) {}

void RunObserver::profile_measured(const ClusterProfile& profile) {
  Terminal::profile_measured(profile);
  save("profile.json", to_json(profile));
}

void RunObserver::plan_made(const EpochPlan& plan) {
  Terminal::plan_made(plan);
  if (run_dir_.empty()) return;
  save("plan.json", to_json(plan));
  // Who computes when, and how it was under the plan before.
  std::vector<TitledPlan> plans;
  if (before_) plans.push_back({"the plan before", *before_});
  plans.push_back({before_ ? "the new plan" : "the plan", plan.full});
  write_text_atomically(run_dir_ / "plan.svg", plan_svg(plans));
  before_ = plan.full;
}

void RunObserver::save(const char* name, const std::string& text) const {
  if (!run_dir_.empty()) write_text_atomically(run_dir_ / name, text + "\n");
}

}  // namespace onebatch::launch
