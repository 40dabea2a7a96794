// Moments as people and file names have them.
#pragma once

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <string>

namespace onebatch::launch {

/// Now, in UTC: the date and time by `pattern` (as strftime has it), milliseconds and a Z, as in
/// "2026-02-28T09:30:00.123Z".
inline std::string utc_time(const std::string& pattern) {
  const auto now = std::chrono::system_clock::now();
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  return fmt::format(fmt::runtime("{:" + pattern + "}.{:03}Z"), fmt::gmtime(std::chrono::system_clock::to_time_t(now)),
                     milliseconds);
}

/// Now, in UTC: "2026-02-28 09:30 UTC".
inline std::string minute_now() {
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(now));
}

}  // namespace onebatch::launch
