// Who is told what happens in a run. The trainer sends on every rank; that rank 0 speaks for all is decided here and
// nowhere else.
#pragma once

#include "trainer/events/event.hpp"

#include <functional>
#include <set>
#include <utility>

namespace onebatch {

/// Called on the thread that trains, which goes on when it returns. What it throws ends the run, as a full disk should.
using Listener = std::function<void(const Event&)>;

/// A listener to one kind of event: `on<event::Validated>([](const event::Validated& validated) { … })`.
template <typename Kind, typename Told>
Listener on(Told told) {
  return [told = std::move(told)](const Event& event) mutable {
    if (const Kind* one = std::get_if<Kind>(&event)) told(*one);
  };
}

/// A fallback as people are told of it.
[[nodiscard]] std::string line_of(const event::Fallback& fallback);

/// What becomes of something that is done instead of what was asked for: --strict refuses it.
enum class Fallbacks { said, refused };

class EventStream {
 public:
  EventStream(int rank, std::vector<Listener> listeners, Fallbacks fallbacks);
  EventStream(const EventStream&) = delete;
  EventStream& operator=(const EventStream&) = delete;

  void listen(Listener listener) { listeners_.push_back(std::move(listener)); }

  /// To all listeners, in their order: an event of the run on rank 0 alone, one of a rank (Failed) on that rank. Throws
  /// what a listener throws, but for Failed: what the session ends of is something else then.
  void send(const Event& event);

  void info(std::string line) { send(event::Info{std::move(line)}); }
  void warn(std::string line) { send(event::Warning{std::move(line)}); }
  /// Sent once, however often it is said. Where fallbacks are refused it throws AgreedError with the user's exit code
  /// instead: hence to be called on all ranks alike, or in work that they agree upon (trainer/device/agreement.hpp).
  void fallback(const std::string& asked, const std::string& done);

 private:
  int rank_;
  std::vector<Listener> listeners_;
  Fallbacks fallbacks_;
  std::set<std::string> said_;
};

}  // namespace onebatch
