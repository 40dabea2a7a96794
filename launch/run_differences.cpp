#include "launch/run_differences.hpp"

#include "launch/config_loader.hpp"
#include "launch/plan_command.hpp"
#include "trainer/base/error.hpp"
#include "trainer/settings/keys.hpp"

namespace onebatch::launch {
namespace {

std::string shown(const Key& key, const Configuration& configuration) {
  const std::string text = key.show(configuration);
  return text.empty() ? "not set" : text;
}

}  // namespace

RunDifferences compare_with_saved(const std::filesystem::path& config_file, const Configuration& now) {
  RunDifferences differences;
  try {
    const LoadedConfig saved = load_config(read_file(config_file.string()), config_file.string(), {});
    if (!saved.mistakes.empty())
      differences.unreadable = saved.mistakes.front().place + ": " + saved.mistakes.front().message;
    differences.saved_name = saved.configuration.run.name;
    differences.begun_from = saved.configuration.checkpoint.resume_path;
    for (const Key& key : configuration_keys()) {
      if (!includes(key.about.changes, Changes::result)) continue;
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
