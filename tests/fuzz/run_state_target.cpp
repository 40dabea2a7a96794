#include "trainer/checkpoint/run_state.hpp"

#include "tests/fuzz/fuzz_target.hpp"

namespace onebatch::fuzz {
namespace {

void run(std::string_view input) {
  check_round_trip(
      input, [](const std::string& text) { return parse_run_state(text, "state.json"); },
      [](const RunState& state) { return to_json(state); });
}

const Registered k_registered("run_state", run);

}  // namespace
}  // namespace onebatch::fuzz
