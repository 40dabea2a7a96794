// The documents of a run's folder: profile.json, plan.json, plan.svg.
#include "launch/sinks.hpp"
#include "trainer/documents/documents.hpp"
#include "trainer/io/durable_file.hpp"
#include "trainer/plan/plan_svg.hpp"

#include <optional>

namespace onebatch::launch {
namespace {

class RunDocuments {
 public:
  explicit RunDocuments(std::filesystem::path run_dir) : run_dir_(std::move(run_dir)) {}

  void operator()(const Event& event) {
    if (const auto* measured = std::get_if<event::ProfileMeasured>(&event))
      save("profile.json", to_json(measured->profile));
    if (const auto* made = std::get_if<event::PlanMade>(&event)) save_plan(made->plan);
  }

 private:
  void save_plan(const EpochPlan& plan) {
    save("plan.json", to_json(plan));
    // Who computes when, and how it was under the plan before.
    std::vector<TitledPlan> plans;
    if (before_) plans.push_back({"the plan before", *before_});
    plans.push_back({before_ ? "the new plan" : "the plan", plan.full});
    write_text_atomically(run_dir_ / "plan.svg", plan_svg(plans));
    before_ = plan.full;
  }

  void save(const char* name, const std::string& text) const { write_text_atomically(run_dir_ / name, text + "\n"); }

  std::filesystem::path run_dir_;
  std::optional<Plan> before_;
};

}  // namespace

Listener make_run_documents(const SinkOptions& options) {
  if (options.run_dir.empty()) return [](const Event&) {};
  return RunDocuments(options.run_dir);
}

}  // namespace onebatch::launch
