#include "comm/watchdog.hpp"

#include "comm/local_communicator.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace onebatch::comm {
namespace {

constexpr auto k_poll = std::chrono::milliseconds(50);
constexpr auto k_time_to_tell = std::chrono::milliseconds(2500);
constexpr auto k_time_to_ask = std::chrono::seconds(2);

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f s", seconds);
  return text;
}

// "rank 1 (host b): its process is stopped; last seen in: micro-batches of step 12, since 4.1 s"
std::string describe(const RankReport& report, const RankPlace& place, std::uint64_t sequence) {
  std::string text = "rank " + std::to_string(report.rank) + " (" + place.host + "): ";
  if (report.process != "running") text += "its process is " + report.process + "; ";
  if (report.inside) {
    text += std::string(report.sequence < sequence ? "in an earlier operation, " : "in ") + report.operation + " (number " +
            std::to_string(report.sequence) + ") since " + seconds_text(report.operation_seconds);
  } else {
    text += report.activity.empty() ? "has said nothing of what it does"
                                    : "last seen in: " + report.activity + ", since " + seconds_text(report.activity_seconds);
  }
  return text;
}

}  // namespace

std::string missing_text(const std::vector<RankReport>& reports, const std::vector<RankPlace>& places, std::uint64_t sequence) {
  std::string entered;
  std::string missing;
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    const auto found = std::find_if(reports.begin(), reports.end(), [&](const RankReport& r) { return r.rank == static_cast<int>(rank); });
    if (found == reports.end()) {
      missing += "\n  rank " + std::to_string(rank) + " (" + places[rank].host + "): no answer from its host";
    } else if (found->sequence >= sequence && found->process == "running") {
      entered += (entered.empty() ? "" : ", ") + std::to_string(rank);
    } else {
      missing += "\n  " + describe(*found, places[rank], sequence);
    }
  }
  if (missing.empty()) return "all ranks have entered it: what connects them is stuck";
  return "entered by rank " + entered + "; missing:" + missing;
}

Watchdog::Guard::Guard(Watchdog& watchdog, const char* operation, std::size_t bytes) : watchdog_(watchdog) {
  if (watchdog_.depth_++ == 0) watchdog_.board_.enter(operation, bytes);
}

Watchdog::Guard::~Guard() {
  if (--watchdog_.depth_ == 0) watchdog_.board_.leave();
}

Watchdog::Watchdog(int rank, int exit_code, StatusBoard& board) : rank_(rank), exit_code_(exit_code), board_(board) {}

Watchdog::~Watchdog() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

void Watchdog::start(std::vector<RankPlace> places, std::unique_ptr<SideChannel> channel) {
  places_ = std::move(places);
  channel_ = std::move(channel);
  thread_ = std::thread([this] { watch(); });
}

void Watchdog::watch() {
  while (!stop_) {
    if (channel_) {
      channel_->serve(k_poll);
    } else {
      std::this_thread::sleep_for(k_poll);
    }
    check();
  }
}

void Watchdog::check() {
  const double seconds = board_.own_seconds_inside();
  if (seconds >= timeout_seconds_) end(seconds);
}

// One rank of a node tells; the others give it time to, and go on answering, then end with the same code.
void Watchdog::end(double seconds) {
  const auto until = std::chrono::steady_clock::now() + k_time_to_tell;
  if (board_.claim_report()) {
    say_failure(rank_, "waited " + seconds_text(seconds) + ", more than comm.timeout_seconds, in " + describe_missing());
  } else {
    while (std::chrono::steady_clock::now() < until && !channel_) std::this_thread::sleep_for(k_poll);
  }
  while (channel_ && std::chrono::steady_clock::now() < until) channel_->serve(k_poll);
  std::_Exit(exit_code_);
}

std::string Watchdog::describe_missing() {
  const std::uint64_t sequence = board_.own_sequence();
  const auto reports = read_all_nodes();
  std::string what;
  for (const RankReport& report : reports) {
    if (report.rank == rank_)
      what = report.operation + " (operation " + std::to_string(sequence) + ", " + std::to_string(report.bytes) + " bytes), ";
  }
  return what + missing_text(reports, places_, sequence);
}

std::vector<RankReport> Watchdog::read_all_nodes() {
  std::vector<RankReport> reports = board_.read();
  if (!channel_) return reports;
  const int own_node = places_[static_cast<std::size_t>(rank_)].node;
  std::vector<int> asked = {own_node};
  const auto until = std::chrono::steady_clock::now() + k_time_to_ask;
  // Any rank of a node answers for all of it; a dead one, or a lost question, costs a moment.
  for (std::size_t i = 0; std::chrono::steady_clock::now() < until && i < 3 * places_.size(); ++i) {
    const RankPlace& place = places_[i % places_.size()];
    if (std::find(asked.begin(), asked.end(), place.node) != asked.end()) continue;
    const auto answer = channel_->ask(place.side_channel, 1);
    if (!answer) continue;
    asked.push_back(place.node);
    for (RankReport& report : RankReport::from_lines(*answer)) reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace onebatch::comm
