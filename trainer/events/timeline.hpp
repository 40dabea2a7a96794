// What each rank did when, as a Chrome trace that Perfetto opens.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace onebatch {

/// Collects spans from any thread. Times are the steady clock's.
class Timeline {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t k_most_spans = 1000000;

  void add(const char* name, const char* track, Clock::time_point begin, Clock::time_point end);

  /// This rank's spans as comma-separated trace events: process `rank`, a thread per track, microseconds since `zero`.
  /// Later spans than k_most_spans are not in it; `dropped` counts them.
  [[nodiscard]] std::string events(int rank, std::string_view process_name, Clock::time_point zero) const;
  [[nodiscard]] std::int64_t dropped() const;

 private:
  struct Recorded {
    const char* name;
    const char* track;
    Clock::time_point begin;
    Clock::time_point end;
  };
  mutable std::mutex mutex_;
  std::vector<Recorded> spans_;
  std::int64_t dropped_ = 0;
};

/// A span from here to the end of the scope; nothing where `timeline` is null. `name` and `track` are literals.
class Span {
 public:
  Span(Timeline* timeline, const char* name, const char* track)
      : timeline_(timeline),
        name_(name),
        track_(track),
        begin_(timeline == nullptr ? Timeline::Clock::time_point() : Timeline::Clock::now()) {}
  ~Span() {
    if (timeline_ != nullptr) timeline_->add(name_, track_, begin_, Timeline::Clock::now());
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  Timeline* timeline_;
  const char* name_;
  const char* track_;
  Timeline::Clock::time_point begin_;
};

/// The document of all ranks' events.
[[nodiscard]] std::string trace_document(const std::vector<std::string>& events_of_ranks);

}  // namespace onebatch
