// The first line of events.jsonl, which a program of [[log.sinks]] is told first, too: which run it is.
#pragma once

#include "launch/config_loader.hpp"
#include "trainer/events/event.hpp"

#include <filesystem>
#include <string>

namespace onebatch::launch {

/// {"event": "run", …} with the configuration as {"optimizer.lr": 0.1, …}: one line, without a newline.
[[nodiscard]] std::string run_line(const LoadedConfig& loaded, const std::filesystem::path& run_dir,
                                   const std::string& as_typed, int num_ranks);

/// Whether a run has begun with it. What measures is the first that a run leaves: a start that is refused before leaves
/// and tells nothing.
[[nodiscard]] bool begins_a_run(const Event& event);

}  // namespace onebatch::launch
