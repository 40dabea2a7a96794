// The configuration: what was set, or in what several runs differ.
#include "launch/report/html.hpp"
#include "launch/report/sections.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace onebatch::launch::report {
namespace {

std::string set_keys(const RunRecord& run) {
  std::string rows;
  for (const ConfigEntry& entry : run.configuration) {
    if (entry.origin == "default" || entry.origin == "as data") continue;
    rows += fmt::format("<tr><th scope=\"row\"><code>{}</code></th><td><code>{}</code></td><td>{}</td></tr>\n",
                        markup_text(entry.key), markup_text(entry.value), markup_text(entry.origin));
  }
  if (rows.empty()) return {};
  return table("Keys that were set; all others have their defaults, and config.toml has every one",
               head_cell("key") + head_cell("value") + head_cell("set by"), rows);
}

const std::string* value_of(const RunRecord& run, const std::string& key) {
  const auto found = std::find_if(run.configuration.begin(), run.configuration.end(),
                                  [&](const ConfigEntry& entry) { return entry.key == key; });
  return found == run.configuration.end() ? nullptr : &found->value;
}

std::vector<std::string> keys_of(const Runs& runs) {
  std::vector<std::string> keys;
  for (const RunRecord& run : runs) {
    for (const ConfigEntry& entry : run.configuration) {
      if (std::find(keys.begin(), keys.end(), entry.key) == keys.end()) keys.push_back(entry.key);
    }
  }
  return keys;
}

std::string differing_keys(const Runs& runs) {
  std::string rows;
  for (const std::string& key : keys_of(runs)) {
    const std::string* first = value_of(runs.front(), key);
    std::string cells;
    bool differ = false;
    for (const RunRecord& run : runs) {
      const std::string* value = value_of(run, key);
      cells += cell(value == nullptr ? "&#8211;" : fmt::format("<code>{}</code>", markup_text(*value)));
      differ = differ || (value == nullptr) != (first == nullptr) || (value != nullptr && *value != *first);
    }
    if (differ) rows += fmt::format("<tr><th scope=\"row\"><code>{}</code></th>{}</tr>\n", markup_text(key), cells);
  }
  if (rows.empty()) return "<p>All keys have the same values in all of these runs.</p>\n";
  std::string head = head_cell("key");
  for (std::size_t i = 0; i < runs.size(); ++i)
    head += head_cell(fmt::format("{} {}", letter_of(i), markup_text(runs[i].name)));
  return table("Keys whose values differ", head, rows);
}

}  // namespace

std::string settings_section(const Runs& runs) {
  const bool some =
      std::any_of(runs.begin(), runs.end(), [](const RunRecord& run) { return !run.configuration.empty(); });
  if (!some) return {};
  const std::string html = runs.size() > 1 ? differing_keys(runs) : set_keys(runs.front());
  return html.empty() ? "" : section("configuration", "Configuration", html);
}

}  // namespace onebatch::launch::report
