#include "tests/fuzz/fuzz_target.hpp"
#include "trainer/documents/documents.hpp"

namespace onebatch::fuzz {
namespace {

void run(std::string_view input) {
  check_round_trip(
      input, [](const std::string& text) { return parse_profile(text, "profile.json"); },
      [](const ClusterProfile& profile) { return to_json(profile); });
}

const Registered k_registered("profile", run);

}  // namespace
}  // namespace onebatch::fuzz
