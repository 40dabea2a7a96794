#include "launch/run_differences.hpp"

#include "launch/config_keys.hpp"
#include "launch/config_loader.hpp"
#include "launch/plan_command.hpp"
#include "trainer/base/error.hpp"

namespace onebatch::launch {
namespace {

std::string shown(const ConfigKey& key, const Configuration& configuration) {
  const bool of_validation = key.path.starts_with("data.validation.");
  const std::string text = of_validation && !configuration.data.validation ? "" : key.show(configuration);
  return text.empty() ? "not set" : text;
}

}  // namespace

RunDifferences compare_with_saved(const std::filesystem::path& config_file, const Configuration& now) {
  RunDifferences differences;
  try {
    const LoadedConfig saved = load_config(read_file(config_file.string()), config_file.string(), {});
    if (!saved.mistakes.empty()) differences.unreadable = saved.mistakes.front().place + ": " + saved.mistakes.front().message;
    differences.saved_name = saved.configuration.run.name;
    for (const ConfigKey& key : config_keys()) {
      if (key.path == "checkpoint.resume" || key.path == "run.output_dir" || (key.path == "run.name" && differences.saved_name.empty()))
        continue;
      const std::string before = shown(key, saved.configuration);
      const std::string after = shown(key, now);
      if (before != after) differences.keys.push_back(key.path + ": " + before + " -> " + after);
    }
  } catch (const UserError& error) {
    differences.unreadable = error.what();
  }
  return differences;
}

std::string RunDifferences::text() const {
  std::string text;
  for (const std::string& key : keys) text += (text.empty() ? "; its configuration differs: " : ", ") + key;
  if (!unreadable.empty()) text += "; not all of its configuration can be read: " + unreadable;
  return text;
}

}  // namespace onebatch::launch
