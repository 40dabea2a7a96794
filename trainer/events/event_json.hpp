// Events as JSON, a line each, for programs that are told of them.
#pragma once

#include "trainer/events/event.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace onebatch {

/// One of k_event_names.
[[nodiscard]] std::string_view name_of(const Event& event);

/// One line, without a newline: {"event": …, "number": …, "time": …} and what the event has to say, as
/// docs/documents.md has it.
[[nodiscard]] std::string to_json_line(const Event& event, std::int64_t number);

}  // namespace onebatch
