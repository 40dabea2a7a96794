// What ranks have together: versions, variables, clocks.
#include "launch/doctor/host_findings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace onebatch::launch {
namespace {

using Values = std::map<std::string, std::string>;

constexpr double k_clocks_agree_seconds = 1.0;
constexpr double k_clocks_far_off_seconds = 10.0;

// Those that say which rank or device this is, and so are meant to differ.
const std::set<std::string> k_of_one_rank = {"CUDA_VISIBLE_DEVICES"};

std::string value_of(const Values& values, const std::string& name) {
  const auto found = values.find(name);
  return found == values.end() ? "none" : found->second;
}

std::string place_of(const MachineFacts& rank) {
  return fmt::format("rank {} on {}", rank.rank, rank.host);
}

struct Difference {
  std::string name;
  const MachineFacts* rank = nullptr;
};

// The first rank that differs from rank 0 in each.
std::vector<Difference> differences(const std::vector<MachineFacts>& ranks, Values MachineFacts::*values) {
  std::set<std::string> names;
  for (const MachineFacts& rank : ranks) {
    for (const auto& [name, value] : rank.*values) names.insert(name);
  }
  std::vector<Difference> found;
  for (const std::string& name : names) {
    if (k_of_one_rank.contains(name)) continue;
    const auto other = std::ranges::find_if(ranks, [&](const MachineFacts& rank) {
      return value_of(rank.*values, name) != value_of(ranks.front().*values, name);
    });
    if (other != ranks.end()) found.push_back({name, &*other});
  }
  return found;
}

std::string text_of(const std::vector<Difference>& found, const MachineFacts& first, Values MachineFacts::*values) {
  std::vector<std::string> texts;
  for (const auto& [name, rank] : found)
    texts.push_back(fmt::format("{}: {} has {}, {} has {}", name, place_of(first), value_of(first.*values, name),
                                place_of(*rank), value_of(rank->*values, name)));
  return fmt::format("{}", fmt::join(texts, "; "));
}

}  // namespace

Finding same_versions(const std::vector<MachineFacts>& ranks) {
  Finding finding{.check = "versions"};
  finding.found = fmt::format("the same on {} ranks", ranks.size());
  const auto found = differences(ranks, &MachineFacts::versions);
  if (found.empty()) return finding;
  const MachineFacts& first = ranks.front();
  const MachineFacts& other = *found.front().rank;
  finding.state = State::broken;
  finding.found = text_of(found, first, &MachineFacts::versions);
  finding.why = "ranks that compute differently train different models, or wait for each other in vain";
  finding.mend = first.host == other.host ? fmt::format("cp {} {}", first.program, other.program)
                                          : fmt::format("scp {} {}:{}", first.program, other.host, other.program);
  finding.otherwise = "start one installation on all hosts, from a folder that they share";
  return finding;
}

Finding same_environment(const std::vector<MachineFacts>& ranks) {
  Finding finding{.check = "environment"};
  finding.found = fmt::format("the same on {} ranks", ranks.size());
  const auto found = differences(ranks, &MachineFacts::environment);
  if (found.empty()) return finding;
  std::vector<std::string> options;
  for (const Difference& one : found) options.push_back(fmt::format("-x {}", one.name));
  finding.state = State::warning;
  finding.found = text_of(found, ranks.front(), &MachineFacts::environment);
  finding.why = "ranks compute or communicate in other ways than one another";
  finding.mend = fmt::format("mpirun {} …", fmt::join(options, " "));
  return finding;
}

Finding same_time(const std::vector<MachineFacts>& ranks, const std::vector<double>& offsets_seconds) {
  Finding finding{.check = "clocks"};
  std::size_t worst = 0;
  for (std::size_t rank = 1; rank < offsets_seconds.size(); ++rank) {
    if (std::abs(offsets_seconds[rank]) > std::abs(offsets_seconds[worst])) worst = rank;
  }
  const double off = offsets_seconds.empty() ? 0.0 : offsets_seconds[worst];
  finding.found = fmt::format("within {:.0f} ms", std::ceil(std::abs(off) * 1e3));
  if (std::abs(off) <= k_clocks_agree_seconds) return finding;
  finding.state = std::abs(off) > k_clocks_far_off_seconds ? State::broken : State::warning;
  finding.found = fmt::format("the clock of {} is {:.1f} s {} rank 0's", place_of(ranks[worst]), std::abs(off),
                              off > 0.0 ? "ahead of" : "behind");
  finding.why = "log files cannot be read side by side, and shared folders show files as newer than now";
  finding.mend = "chronyc makestep";
  finding.otherwise = "timedatectl set-ntp true, on each host";
  return finding;
}

}  // namespace onebatch::launch
