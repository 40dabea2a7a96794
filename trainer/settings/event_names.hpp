// What the events of a run are called where other programs read them.
#pragma once

#include <array>
#include <string_view>

namespace onebatch {

/// docs/documents.md describes each. "run" comes first of all and says which run it is.
inline constexpr std::array<std::string_view, 14> k_event_names = {
    "run",  "info",          "warning",   "fallback",   "profile",    "plan",  "training_begins",
    "step", "out_of_memory", "replanned", "validation", "checkpoint", "ended", "failed"};

}  // namespace onebatch
