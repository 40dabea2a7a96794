#include "launch/doctor/finding.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>
#include <stdexcept>

namespace onebatch::launch {
namespace {

using Json = nlohmann::ordered_json;

constexpr State k_states[] = {State::skipped, State::well, State::warning, State::broken};

State state_of(const std::string& word) {
  for (const State state : k_states) {
    if (word == word_of(state)) return state;
  }
  throw std::runtime_error(fmt::format("no state of a finding: {}", word));
}

std::string beside(const char* word, const std::string& text) {
  return text.empty() ? "" : fmt::format("{:20}{:10}{}\n", "", word, text);
}

}  // namespace

bool add_of_another(const Finding& finding, std::vector<Finding>& known) {
  static const std::set<std::string> of_bytes = {"disk", "shared memory", "temporary files"};
  std::vector<std::string> hosts = finding.hosts;
  for (const Finding& one : known) {
    if (one.check != finding.check || one.state != finding.state) continue;
    if (one.found != finding.found && !of_bytes.contains(one.check)) continue;
    std::erase_if(hosts, [&](const auto& host) { return std::ranges::find(one.hosts, host) != one.hosts.end(); });
  }
  if (hosts.empty()) return false;
  const auto same = std::ranges::find_if(
      known, [&](const Finding& one) { return one.check == finding.check && one.found == finding.found; });
  if (same == known.end()) {
    known.push_back(finding);
    return true;
  }
  same->hosts.insert(same->hosts.end(), hosts.begin(), hosts.end());
  return false;
}

const char* word_of(State state) {
  switch (state) {
    case State::skipped: return "skipped";
    case State::well: return "ok";
    case State::warning: return "warning";
    case State::broken: return "broken";
  }
  return "";
}

std::string text_of(const Finding& finding) {
  std::string text = fmt::format("{:8} {:18} {}\n", word_of(finding.state), finding.check, finding.found);
  if (!is_problem(finding)) return text;
  if (finding.hosts.size() > 1) text += beside("hosts", fmt::format("{}", fmt::join(finding.hosts, ", ")));
  return text + beside("matters", finding.why) + beside("mend", finding.mend) + beside("or", finding.otherwise);
}

std::string to_json(const DoctorReport& report) {
  State worst = State::well;
  Json list = Json::array();
  for (const Finding& one : report.findings) {
    worst = std::max(worst, one.state);
    list.push_back({{"check", one.check},
                    {"state", word_of(one.state)},
                    {"found", one.found},
                    {"why", one.why},
                    {"mend", one.mend},
                    {"otherwise", one.otherwise},
                    {"hosts", one.hosts}});
  }
  return Json{{"state", word_of(worst)}, {"ranks", report.ranks}, {"findings", list}}.dump(
      2, ' ', false, Json::error_handler_t::replace);
}

DoctorReport parse_doctor_report(const std::string& text) {
  const Json document = Json::parse(text);
  DoctorReport report;
  report.ranks = document.at("ranks").get<int>();
  for (const Json& one : document.at("findings"))
    report.findings.push_back({.check = one.at("check").get<std::string>(),
                               .state = state_of(one.at("state").get<std::string>()),
                               .found = one.at("found").get<std::string>(),
                               .why = one.at("why").get<std::string>(),
                               .mend = one.at("mend").get<std::string>(),
                               .otherwise = one.at("otherwise").get<std::string>(),
                               .hosts = one.at("hosts").get<std::vector<std::string>>()});
  return report;
}

std::string summary_of(const std::vector<Finding>& findings) {
  const auto broken = std::ranges::count(findings, State::broken, &Finding::state);
  const auto warnings = std::ranges::count(findings, State::warning, &Finding::state);
  if (broken == 0 && warnings == 0) return "all is well";
  const std::string slow = warnings == 0 ? "" : fmt::format("{} warning{}", warnings, warnings == 1 ? "" : "s");
  if (broken == 0) return fmt::format("nothing is broken; {}", slow);
  return fmt::format("{} thing{} broken{}{}", broken, broken == 1 ? " is" : "s are", slow.empty() ? "" : "; ", slow);
}

}  // namespace onebatch::launch
