#include "trainer/plan/elsewhere/device_list.hpp"

#include "trainer/base/error.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <set>
#include <tuple>

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

// What a plan is made of.
auto numbers_of(const RankProfile& rank) {
  return std::tie(rank.memory_limit_bytes, rank.min_micro_batch, rank.max_micro_batch, rank.room_bytes,
                  rank.kept_in_host, rank.jitter, rank.recomputes, rank.optimizer_seconds, rank.exchange_seconds,
                  rank.lock_step, rank.local_statistics);
}

auto numbers_of(const MemoryUse& memory) {
  return std::tie(memory.parameters_bytes, memory.buffers_bytes, memory.gradients_bytes, memory.optimizer_bytes,
                  memory.communication_bytes, memory.workspace_bytes, memory.activation_bytes_per_sample,
                  memory.kept_bytes_per_sample);
}

auto numbers_of(const TimedSize& time) {
  return std::tie(time.size, time.seconds);
}

bool are_the_same(const RankProfile& one, const RankProfile& other) {
  return numbers_of(one) == numbers_of(other) && numbers_of(one.memory) == numbers_of(other.memory) &&
         std::ranges::equal(one.step_seconds, other.step_seconds, [](const TimedSize& left, const TimedSize& right) {
           return numbers_of(left) == numbers_of(right);
         });
}

[[noreturn]] void refuse_unknown(const std::string& name, const DeviceProfiles& known) {
  std::set<std::string> names;
  for (const auto& [key, one] : known)
    names.insert(one.by_file ? hyphened(one.file) : one.profile.device.empty() ? key : hyphened(one.profile.device));
  throw UserError("--devices: there is no profile of \"" + name + "\"; " +
                  (names.empty() ? "the folder holds none: save some with onebatch probe CONFIG --json FILE"
                                 : fmt::format("known are {}", fmt::join(names, ", "))));
}

// Whether the file's name in a list is this profile.
bool is_called_by_file(const KnownProfile& one, const DeviceProfiles& known) {
  const auto [first, last] = known.equal_range(device_key(one.file));
  const auto by_file = [](const DeviceProfiles::value_type& other) { return other.second.by_file; };
  const auto found = std::find_if(first, last, by_file);
  return found != last && found->second.file == one.file && std::count_if(first, last, by_file) == 1;
}

[[noreturn]] void refuse_several(const DeviceGroup& group, const std::vector<const KnownProfile*>& found,
                                 const DeviceProfiles& known) {
  std::vector<std::string> files;
  files.reserve(found.size());
  for (const KnownProfile* one : found) files.push_back(one->file + ".json");
  const auto called =
      std::ranges::find_if(found, [&](const KnownProfile* one) { return is_called_by_file(*one, known); });
  const std::string advice = called == found.end()
                                 ? "keep one of them in the folder"
                                 : fmt::format("write a file's own name instead, as in --devices {}x{}", group.count,
                                               hyphened((*called)->file));
  throw UserError(fmt::format("--devices: several files have different profiles of \"{}\" ({}): {}", group.name,
                              fmt::join(files, ", "), advice));
}

const RankProfile& find_profile(const DeviceGroup& group, const DeviceProfiles& known) {
  const auto [first, last] = known.equal_range(device_key(group.name));
  std::vector<const KnownProfile*> by_file;
  std::vector<const KnownProfile*> by_device;
  for (auto one = first; one != last; ++one) (one->second.by_file ? by_file : by_device).push_back(&one->second);
  const auto& found = by_file.empty() ? by_device : by_file;
  if (found.empty()) refuse_unknown(group.name, known);
  const RankProfile& profile = found.front()->profile;
  const bool alike =
      std::ranges::all_of(found, [&](const KnownProfile* other) { return are_the_same(other->profile, profile); });
  if (!alike) refuse_several(group, found, known);
  return profile;
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
  // Of a device that it has several times the first.
  std::set<std::string> seen;
  for (const RankProfile& rank : profile.ranks) {
    const std::string key = device_key(rank.device);
    if (!rank.device.empty() && seen.insert(key).second) known.emplace(key, KnownProfile(rank, file_stem));
  }
  const auto& first = profile.ranks.front().device;
  const bool only = std::all_of(profile.ranks.begin(), profile.ranks.end(),
                                [&](const RankProfile& rank) { return rank.device == first; });
  if (only) known.emplace(device_key(file_stem), KnownProfile(profile.ranks.front(), file_stem, true));
}

ClusterProfile make_cluster(const std::vector<DeviceGroup>& devices, const DeviceProfiles& known) {
  ClusterProfile cluster;
  for (const DeviceGroup& group : devices) {
    const RankProfile& profile = find_profile(group, known);
    for (std::int64_t i = 0; i < group.count; ++i) {
      cluster.ranks.push_back(profile);
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
