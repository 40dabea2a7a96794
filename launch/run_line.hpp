// The first line that a program of [[log.sinks]] is told: which run it is.
#pragma once

#include "launch/config_loader.hpp"

#include <filesystem>
#include <string>

namespace onebatch::launch {

/// {"event": "run", …} with the configuration as {"optimizer.lr": 0.1, …}: one line, without a newline.
[[nodiscard]] std::string run_line(const LoadedConfig& loaded, const std::filesystem::path& run_dir,
                                   const std::string& as_typed, int num_ranks);

}  // namespace onebatch::launch
