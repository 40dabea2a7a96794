#include "trainer/events/event_stream.hpp"

#include <fmt/format.h>

namespace onebatch {

std::string line_of(const event::Fallback& fallback) {
  return fallback.asked.empty() ? fallback.done : fmt::format("asked for {}; did {}", fallback.asked, fallback.done);
}

EventStream::EventStream(int rank, std::vector<Listener> listeners, Fallbacks fallbacks)
    : rank_(rank), listeners_(std::move(listeners)), fallbacks_(fallbacks) {}

void EventStream::send(const Event& event) {
  const bool fails = std::holds_alternative<event::Failed>(event);
  if (rank_ != 0 && !fails) return;
  for (const Listener& listener : listeners_) {
    try {
      listener(event);
    } catch (const std::exception&) {
      if (!fails) throw;
    }
  }
}

void EventStream::fallback(const std::string& asked, const std::string& done) {
  const std::string line = line_of({asked, done});
  if (fallbacks_ == Fallbacks::refused) throw AgreedError(ExitCode::user_error, fmt::format("--strict: {}", line));
  if (said_.insert(line).second) send(event::Fallback{asked, done});
}

}  // namespace onebatch
