// The timeline of a run: every rank's spans, in one file.
#pragma once

#include "comm/communicator.hpp"
#include "trainer/events/event_stream.hpp"
#include "trainer/events/timeline.hpp"

#include <filesystem>

namespace onebatch {

class RunTimeline {
 public:
  /// Where `file` is empty, nothing is recorded. Listens to what rank 0's threads do beside the steps: it must live as
  /// long as `events`.
  RunTimeline(std::filesystem::path file, EventStream& events);
  RunTimeline(const RunTimeline&) = delete;
  RunTimeline& operator=(const RunTimeline&) = delete;

  /// Where this rank's spans go; null: nowhere.
  [[nodiscard]] Timeline* spans() { return file_.empty() ? nullptr : &spans_; }
  /// All ranks' spans, on rank 0's clock; `device` is the name of this rank's. Collective.
  void write(comm::Communicator& control, const std::string& device);

 private:
  [[nodiscard]] Timeline::Clock::time_point moment_of_rank_0(comm::Communicator& control) const;

  std::filesystem::path file_;
  EventStream& events_;
  Timeline spans_;
  double first_moment_ = std::chrono::duration<double>(Timeline::Clock::now().time_since_epoch()).count();
};

}  // namespace onebatch
