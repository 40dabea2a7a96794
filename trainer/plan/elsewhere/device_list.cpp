#include "trainer/plan/elsewhere/device_list.hpp"

#include "trainer/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

namespace onebatch {
namespace {

constexpr std::int64_t k_most_devices = 1 << 20;  // of a whole list

DeviceGroup parse_group(std::string_view text) {
  const auto end = text.find_first_not_of("0123456789");
  std::int64_t count = 0;
  const char* digits_end = text.data() + std::min(end, text.size());
  const auto [stopped, error] = std::from_chars(text.data(), digits_end, count);
  const bool counted = error == std::errc() && stopped == digits_end && count >= 1 && count <= k_most_devices;
  if (!counted || end == std::string_view::npos || text[end] != 'x' || end + 1 == text.size())
    throw UserError("--devices: \"" + std::string(text) +
                    "\" is no group of devices: write a count, x and a name, as in 4xV100-16GB,4xP100-16GB");
  return {count, std::string(text.substr(end + 1))};
}

std::string hyphened(std::string name) {
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

}  // namespace

std::vector<DeviceGroup> parse_devices(std::string_view text) {
  std::vector<DeviceGroup> groups;
  std::int64_t num_devices = 0;
  while (true) {
    const auto comma = text.find(',');
    auto part = text.substr(0, comma);
    while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
    while (!part.empty() && part.back() == ' ') part.remove_suffix(1);
    groups.push_back(parse_group(part));
    num_devices += groups.back().count;
    if (num_devices > k_most_devices)
      throw UserError(fmt::format("--devices: more than {} devices: write a smaller cluster", k_most_devices));
    if (comma == std::string_view::npos) return groups;
    text.remove_prefix(comma + 1);
  }
}

std::string device_key(std::string_view name) {
  std::string key;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      key += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  for (const std::string_view maker : {"nvidia", "geforce"}) {
    if (key.starts_with(maker) && key.size() > maker.size()) key.erase(0, maker.size());
  }
  return key;
}

void add_devices(DeviceProfiles& known, const ClusterProfile& profile, const std::string& file_stem) {
  for (const RankProfile& rank : profile.ranks) {
    if (!rank.device.empty()) known.try_emplace(device_key(rank.device), rank);
  }
  const auto& first = profile.ranks.front().device;
  const bool only = std::all_of(profile.ranks.begin(), profile.ranks.end(),
                                [&](const RankProfile& rank) { return rank.device == first; });
  if (only) known.try_emplace(device_key(file_stem), profile.ranks.front());
}

ClusterProfile make_cluster(const std::vector<DeviceGroup>& devices, const DeviceProfiles& known) {
  ClusterProfile cluster;
  for (const DeviceGroup& group : devices) {
    const auto found = known.find(device_key(group.name));
    if (found == known.end()) {
      std::string names;
      for (const auto& [key, rank] : known)
        names += (names.empty() ? "" : ", ") + (rank.device.empty() ? key : hyphened(rank.device));
      throw UserError("--devices: there is no profile of \"" + group.name + "\"; " +
                      (names.empty() ? "the folder holds none: save some with onebatch probe CONFIG --json FILE"
                                     : "known are " + names));
    }
    for (std::int64_t i = 0; i < group.count; ++i) {
      cluster.ranks.push_back(found->second);
      cluster.ranks.back().rank = static_cast<int>(cluster.ranks.size()) - 1;
      cluster.ranks.back().trials.clear();
      if (cluster.ranks.back().device.empty()) cluster.ranks.back().device = group.name;
    }
  }
  return cluster;
}

Prices parse_prices(std::string_view text) {
  Prices prices;
  while (!text.empty()) {
    const auto comma = text.find(',');
    const std::string part(text.substr(0, comma));
    const auto equals = part.find('=');
    std::size_t used = 0;
    double price = -1.0;
    try {
      if (equals != std::string::npos && equals > 0) price = std::stod(part.substr(equals + 1), &used);
    } catch (const std::exception&) {
      used = 0;
    }
    if (used == 0 || used != part.size() - equals - 1 || !std::isfinite(price) || price < 0.0)
      throw UserError("--prices: \"" + part +
                      "\" is no price: write NAME=PRICE of a device's hour, as in A100-80GB=2.5,V100-16GB=0.9");
    prices[device_key(part.substr(0, equals))] = price;
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  return prices;
}

}  // namespace onebatch
