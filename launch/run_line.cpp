#include "launch/run_line.hpp"

#include "comm/error.hpp"
#include "launch/toml_value.hpp"
#include "trainer/base/version.hpp"
#include "trainer/settings/keys.hpp"

#include <nlohmann/json.hpp>

namespace onebatch::launch {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const ConfigValue& value) {
  if (const auto flag = value.boolean()) return *flag;
  if (const auto whole = value.integer()) return *whole;
  if (const auto number = value.number()) return *number;
  if (const auto text = value.text()) return *text;
  if (const ConfigList* list = value.list()) {
    Json items = Json::array();
    for (const ConfigValue& item : *list) items.push_back(json_of(item));
    return items;
  }
  Json object = Json::object();
  if (const ConfigTable* table = value.table()) {
    for (const auto& [name, member] : *table) object[name] = json_of(member);
  }
  return object;
}

// Every key that is set, as a run's config.toml has it.
Json configuration_json(const Configuration& configuration) {
  Json keys = Json::object();
  for (const Key& key : configuration_keys()) {
    const std::string shown = key.show(configuration);
    if (shown.empty() || !is_in_use(key, configuration)) continue;
    try {
      const toml::table parsed = toml::parse("value = " + shown);
      keys[key.path] = json_of(value_of(*parsed.get("value")));
    } catch (const toml::parse_error&) {
      keys[key.path] = shown;
    }
  }
  return keys;
}

}  // namespace

std::string run_line(const LoadedConfig& loaded, const std::filesystem::path& run_dir, const std::string& as_typed,
                     int num_ranks) {
  const Json line = {{"event", "run"},
                     {"number", 0},
                     {"time", unix_seconds()},
                     {"name", run_dir.filename().string()},
                     {"run_dir", run_dir.string()},
                     {"command", as_typed},
                     {"onebatch", k_version},
                     {"host", comm::host_name()},
                     {"ranks", num_ranks},
                     {"configuration", configuration_json(loaded.configuration)}};
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool begins_a_run(const Event& event) {
  return std::holds_alternative<event::ProfileMeasured>(event) || std::holds_alternative<event::PlanMade>(event) ||
         std::holds_alternative<event::TrainingBegins>(event);
}

}  // namespace onebatch::launch
