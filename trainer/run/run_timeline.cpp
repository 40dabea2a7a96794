#include "trainer/run/run_timeline.hpp"

#include "trainer/device/agreement.hpp"
#include "trainer/io/durable_file.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace onebatch {

RunTimeline::RunTimeline(std::filesystem::path file, EventStream& events) : file_(std::move(file)), events_(events) {
  if (file_.empty()) return;
  events_.listen(on<event::CheckpointSaved>(
      [this](const event::CheckpointSaved& saved) { spans_.add("write", "checkpoint", saved.begin, saved.end); }));
}

// When rank 0 began, on this rank's clock. Ranks' clocks have nothing in common across hosts: what they show as they
// leave the same barriers does.
Timeline::Clock::time_point RunTimeline::moment_of_rank_0(comm::Communicator& control) const {
  constexpr int k_rounds = 15;
  std::vector<double> ahead;
  for (int i = 0; i < k_rounds; ++i) {
    control.barrier();
    const double mine = std::chrono::duration<double>(Timeline::Clock::now().time_since_epoch()).count();
    double first = mine;
    control.broadcast(&first, sizeof(first), 0);
    ahead.push_back(mine - first);
  }
  std::nth_element(ahead.begin(), ahead.begin() + k_rounds / 2, ahead.end());
  double zero = first_moment_;
  control.broadcast(&zero, sizeof(zero), 0);
  return Timeline::Clock::time_point{
      std::chrono::duration_cast<Timeline::Clock::duration>(std::chrono::duration<double>(zero + ahead[k_rounds / 2]))};
}

void RunTimeline::write(comm::Communicator& control, const std::string& device) {
  const auto zero = moment_of_rank_0(control);
  const std::string name = fmt::format("rank {}: {}", control.rank(), device);
  const auto all = comm::all_gather_text(control, spans_.events(control.rank(), name, zero));
  agree_on_rank_0(control, [&] { write_text_atomically(file_, trace_document(all)); });
  if (spans_.dropped() > 0)
    events_.warn(fmt::format("the timeline holds the first {} spans only", Timeline::k_most_spans));
  events_.info("the timeline is in " + file_.string() + ": open it in https://ui.perfetto.dev");
}

}  // namespace onebatch
