#include "launch/report/axis.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace onebatch::launch::report {
namespace {

constexpr double k_parts = 4.0;
constexpr double k_far_apart = 30.0;

// A round number, so that about k_parts of it make `range`.
double round_step(double range) {
  const double raw = range / k_parts;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (raw <= factor * power * 1.0001) return factor * power;
  }
  return 10.0 * power;
}

std::vector<double> ticks_between(double low, double high, double step) {
  std::vector<double> ticks;
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + 1e-9 * step && ticks.size() < 20; i += 1.0)
    ticks.push_back(i * step);
  return ticks;
}

Axis logarithmic(double low, double high) {
  const double first = std::floor(std::log10(low) + 1e-9);
  const double last = std::ceil(std::log10(high) - 1e-9);
  Axis axis{Scale::logarithmic, std::pow(10.0, first), std::pow(10.0, last)};
  const auto factor_of = [](double room) { return room >= 5.0 ? 5.0 : (room >= 2.0 ? 2.0 : 1.0); };
  axis.low *= factor_of(low / axis.low * (1.0 + 1e-9));
  axis.high /= factor_of(axis.high / high * (1.0 + 1e-9));
  const double every = std::max(1.0, std::ceil((last - first) / 5.0));
  for (double power = first; power <= last; power += every) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double tick = std::pow(10.0, power) * factor;
      const bool drawn = factor == 1.0 || last - first <= 2.0;
      if (drawn && tick >= axis.low * 0.999 && tick <= axis.high * 1.001) axis.ticks.push_back(tick);
    }
  }
  return axis;
}

}  // namespace

double Axis::place(double value) const {
  if (scale == Scale::logarithmic) return value > 0.0 ? std::log(value / low) / std::log(high / low) : 0.0;
  return (value - low) / (high - low);
}

Axis axis_of(double low, double high) {
  if (low > 0.0 && high / low >= k_far_apart) return logarithmic(low, high);
  if (high - low < 1e-12 * std::max(std::abs(low), std::abs(high)) || high == low) {
    const double room = low == 0.0 ? 1.0 : 0.05 * std::abs(low);
    low -= low >= 0.0 ? std::min(room, low) : room;
    high += room;
  }
  const double step = round_step(high - low);
  Axis axis{Scale::linear, std::floor(low / step + 1e-9) * step, std::ceil(high / step - 1e-9) * step};
  axis.ticks = ticks_between(axis.low, axis.high, step);
  return axis;
}

Axis exact_axis(double low, double high) {
  if (!(high > low)) high = low + 1.0;
  Axis axis{Scale::linear, low, high};
  const double step = std::max(1.0, round_step(high - low));
  axis.ticks = ticks_between(low, high, step);
  return axis;
}

std::string axis_text(double value) {
  const double size = std::abs(value);
  if (size >= 1e9) return fmt::format("{:.4g}G", value / 1e9);
  if (size >= 1e6) return fmt::format("{:.4g}M", value / 1e6);
  if (size >= 1e4) return fmt::format("{:.4g}k", value / 1e3);
  return fmt::format("{:.4g}", std::abs(value) < 1e-300 ? 0.0 : value);
}

}  // namespace onebatch::launch::report
