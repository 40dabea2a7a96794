#include "trainer/events/timeline.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace onebatch {
namespace {

using Json = nlohmann::ordered_json;

double microseconds(Timeline::Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

std::string name_event(const char* what, int rank, std::size_t track, std::string_view name) {
  return Json{{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", track}, {"args", {{"name", name}}}}.dump();
}

}  // namespace

void Timeline::add(const char* name, const char* track, Clock::time_point begin, Clock::time_point end) {
  const std::scoped_lock lock(mutex_);
  if (spans_.size() >= k_most_spans) {
    ++dropped_;
    return;
  }
  spans_.push_back({name, track, begin, end});
}

std::int64_t Timeline::dropped() const {
  const std::scoped_lock lock(mutex_);
  return dropped_;
}

std::string Timeline::events(int rank, std::string_view process_name, Clock::time_point zero) const {
  const std::scoped_lock lock(mutex_);
  std::vector<std::string> tracks;
  std::string text = name_event("process_name", rank, 0, process_name);
  for (const Recorded& span : spans_) {
    auto track = std::find(tracks.begin(), tracks.end(), span.track);
    if (track == tracks.end()) {
      tracks.emplace_back(span.track);
      track = tracks.end() - 1;
      text += ",\n" + name_event("thread_name", rank, tracks.size() - 1, span.track);
    }
    text += ",\n" + Json{{"ph", "X"},
                         {"name", span.name},
                         {"pid", rank},
                         {"tid", track - tracks.begin()},
                         {"ts", microseconds(span.begin - zero)},
                         {"dur", microseconds(span.end - span.begin)}}
                        .dump();
  }
  return text;
}

std::string trace_document(const std::vector<std::string>& events_of_ranks) {
  std::string text = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
  for (std::size_t rank = 0; rank < events_of_ranks.size(); ++rank)
    text += (rank == 0 ? "" : ",\n") + events_of_ranks[rank];
  return text + "\n]}\n";
}

}  // namespace onebatch
