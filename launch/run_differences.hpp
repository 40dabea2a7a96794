// What of a run's configuration is another than when it was saved.
#pragma once

#include "trainer/base/configuration.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace onebatch::launch {

struct RunDifferences {
  std::string saved_name;         // run.name as it was saved; empty where it cannot be read
  std::string begun_from;         // the checkpoint that it was told to begin from; empty: none
  std::vector<std::string> keys;  // "optimizer.lr: 0.1 -> 0.2"
  std::string unreadable;         // why the saved configuration says nothing

  [[nodiscard]] bool none() const { return keys.empty() && unreadable.empty(); }
  /// To follow what goes on; empty where nothing differs.
  [[nodiscard]] std::string text() const;
};

/// Of the keys that change the result. `config_file` is a run's config.toml.
RunDifferences compare_with_saved(const std::filesystem::path& config_file, const Configuration& now);

}  // namespace onebatch::launch
