// --devices and --prices.
#include "trainer/plan/elsewhere/device_list.hpp"

#include "tests/fuzz/fuzz_target.hpp"

#include <cmath>

namespace onebatch::fuzz {
namespace {

std::string devices_text(const std::vector<DeviceGroup>& groups) {
  std::string text;
  for (const DeviceGroup& group : groups)
    text.append(text.empty() ? "" : ",").append(std::to_string(group.count)).append("x").append(group.name);
  return text;
}

void run(std::string_view input) {
  check_round_trip(
      input, [](const std::string& text) { return parse_devices(text); }, devices_text);
  const DeviceProfiles known = {{"v10016gb", RankProfile{}}, {"a", RankProfile{}}};
  const auto groups = unless_refused([&] { return parse_devices(input); });
  std::int64_t num_devices = 0;
  for (const DeviceGroup& group : groups.value_or(std::vector<DeviceGroup>{})) num_devices += group.count;
  check(num_devices <= 1 << 20, "a list of devices has a bound");
  if (groups && num_devices <= 10'000) unless_refused([&] { return make_cluster(*groups, known); });
  const auto prices = unless_refused([&] { return parse_prices(input); });
  if (!prices) return;
  for (const auto& [key, price] : *prices)
    check(std::isfinite(price) && price >= 0.0, "a price is a finite number from 0");
}

const Registered k_registered("device_list", run);

}  // namespace
}  // namespace onebatch::fuzz
