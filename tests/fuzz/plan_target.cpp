#include "tests/fuzz/fuzz_target.hpp"
#include "trainer/documents/documents.hpp"
#include "trainer/plan/plan_report.hpp"

namespace onebatch::fuzz {
namespace {

EpochPlan parse(const std::string& text) {
  return parse_epoch_plan(text, "plan.json");
}

void run(std::string_view input) {
  check_round_trip(input, parse, [](const EpochPlan& plan) { return to_json(plan); });
  const auto plan = unless_refused([&] { return parse(std::string(input)); });
  if (plan) check(!plan_table(*plan).empty(), "a plan that is read can be shown");
}

const Registered k_registered("plan", run);

}  // namespace
}  // namespace onebatch::fuzz
