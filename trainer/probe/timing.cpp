#include "trainer/probe/timing.hpp"

#include "comm/statistics.hpp"

#include <algorithm>

namespace onebatch {
namespace {

// Plans are made of sizes from an eighth of the largest on.
bool matters(std::int64_t size, const TimesOfSizes& times) {
  return size * 8 >= times.rbegin()->first;
}

}  // namespace

void Times::add(const Times& others) {
  for (const auto& [size, seconds] : others.micro_steps)
    micro_steps[size].insert(micro_steps[size].end(), seconds.begin(), seconds.end());
  updates.insert(updates.end(), others.updates.begin(), others.updates.end());
}

std::vector<TimedSize> typical_times(const TimesOfSizes& times) {
  std::vector<TimedSize> typical;
  for (const auto& [size, seconds] : times) typical.push_back({size, comm::median(seconds)});
  return typical;
}

double spread_of(const TimesOfSizes& times) {
  double worst = 0.0;
  double most = 0.0;  // of the sizes until now
  for (const auto& [size, seconds] : times) {
    const double typical = comm::median(seconds);
    if (!matters(size, times) || typical <= 0.0) continue;
    if (seconds.size() > 2)
      worst = std::max(worst, (comm::quantile(seconds, 0.75) - comm::quantile(seconds, 0.25)) / typical);
    worst = std::max(worst, most / typical - 1.0);
    most = std::max(most, typical);
  }
  return worst;
}

double jitter_of(const TimesOfSizes& times) {
  std::vector<double> parts;
  for (const auto& [size, seconds] : times) {
    const double typical = comm::median(seconds);
    if (!matters(size, times) || typical <= 0.0 || seconds.size() < 3) continue;
    for (const double of_one : seconds) parts.push_back(of_one / typical);
  }
  return parts.empty() ? 0.0 : std::max(0.0, comm::quantile(parts, 0.75) - 1.0);
}

}  // namespace onebatch
