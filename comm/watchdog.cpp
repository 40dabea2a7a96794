#include "comm/watchdog.hpp"

#include "comm/error.hpp"
#include "comm/local_communicator.hpp"
#include "comm/siblings.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <system_error>
#include <utility>

namespace onebatch::comm {
namespace {

constexpr auto k_poll = std::chrono::milliseconds(50);
constexpr auto k_turn = std::chrono::milliseconds(1);
constexpr auto k_time_to_tell = std::chrono::milliseconds(2500);
constexpr auto k_time_to_write = std::chrono::seconds(5);  // what is told, where the disk answers at all
constexpr auto k_time_to_ask = std::chrono::seconds(2);
constexpr auto k_time_to_vote = std::chrono::milliseconds(1500);
constexpr double k_fresh_seconds = 1.5;  // an operation is looked at several times before it is that old
// Libraries load slowly on a busy machine, and nobody is known to be stuck.
constexpr double k_slow_start_seconds = 60.0;
constexpr double k_seconds_for_stacks = 2.0;
constexpr auto k_head_start = std::chrono::milliseconds(150);
constexpr int k_most_waited_for = 10;
constexpr double k_longest_put_off = 86400.0;  // seconds, whatever the deadline is

// "rank 1 (host b): its process is stopped; last seen in: micro-batches of step 12, since 4.1 s"
std::string describe(const RankReport& report, const RankPlace& place, std::uint64_t sequence) {
  std::string text = fmt::format("rank {} ({}): ", report.rank, place.host);
  if (report.process != "running") text += fmt::format("its process is {}; ", report.process);
  if (report.inside)
    return text + fmt::format("{}{} (number {}) since {:.1f} s",
                              report.sequence < sequence ? "in an earlier operation, " : "in ", report.operation,
                              report.sequence, report.operation_seconds);
  if (report.activity.empty()) return text + "has said nothing of what it does";
  return text + fmt::format("last seen in: {}, since {:.1f} s", report.activity, report.activity_seconds);
}

// Where nobody has asked to write incidents down: until the ranks have met.
void say_in_short(const Incident& incident) {
  std::string text = incident.reason;
  if (!incident.operations.empty() && !incident.operations.back().ended)
    text += ", in " + incident.operations.back().name;
  for (const Incident::Process& process : incident.processes)
    text += fmt::format("\nthreads of rank {}\n{}", process.rank, to_text(process.threads));
  say_failure(incident.rank, text);
}

}  // namespace

std::string missing_text(const std::vector<RankReport>& reports, const std::vector<RankPlace>& places,
                         std::uint64_t sequence) {
  std::string entered;
  std::string missing;
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    const auto found = std::find_if(reports.begin(), reports.end(),
                                    [&](const RankReport& r) { return r.rank == static_cast<int>(rank); });
    if (found == reports.end()) {
      missing += fmt::format("\n  rank {} ({}): no answer from its host", rank, places[rank].host);
    } else if (found->sequence >= sequence && found->process == "running") {
      entered += fmt::format("{}{}", entered.empty() ? "" : ", ", rank);
    } else {
      missing += "\n  " + describe(*found, places[rank], sequence);
    }
  }
  if (missing.empty()) return "all ranks have entered it: what connects them is stuck";
  return fmt::format("entered by rank {}; missing:{}", entered, missing);
}

double seconds_of_patience(const std::vector<RankReport>& reports, std::size_t num_ranks, std::uint64_t sequence,
                           double timeout_seconds) {
  if (reports.size() < num_ranks) return 0.0;
  double patience = 0.0;
  for (const RankReport& report : reports) {
    if (report.process != "running") return 0.0;
    // One that is inside waits for others itself: from when it came. One that has never said anything says nothing now.
    if (report.inside)
      patience = std::max(patience, timeout_seconds - report.operation_seconds);
    else if (report.sequence < sequence && !report.activity.empty())
      patience = std::max(patience, timeout_seconds - report.activity_seconds);
  }
  return patience;
}

std::vector<int> ranks_to_ask(const std::vector<RankPlace>& places, const std::set<int>& answered,
                              const std::map<int, std::size_t>& silent) {
  std::map<int, std::vector<int>> ranks_of_nodes;
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    if (!answered.contains(places[rank].node)) ranks_of_nodes[places[rank].node].push_back(static_cast<int>(rank));
  }
  std::vector<int> ranks;
  for (const auto& [node, of_node] : ranks_of_nodes) {
    const auto found = silent.find(node);
    ranks.push_back(of_node[(found == silent.end() ? 0 : found->second) % of_node.size()]);
  }
  return ranks;
}

double RunningTime::update(std::int64_t entered_nanoseconds, std::int64_t now_nanoseconds) {
  constexpr std::int64_t k_longest_gap = 1'000'000'000;
  const std::int64_t gap = std::min(now_nanoseconds - std::max(asked_, entered_nanoseconds), k_longest_gap);
  asked_ = now_nanoseconds;
  if (entered_nanoseconds != entered_) seconds_ = 0.0;
  entered_ = entered_nanoseconds;
  if (entered_ == 0) return -1.0;
  seconds_ += static_cast<double>(std::max<std::int64_t>(0, gap)) * 1e-9;
  return seconds_;
}

Watchdog::Guard::Guard(Watchdog& watchdog, const char* operation, std::size_t bytes) : watchdog_(watchdog) {
  if (watchdog_.depth_++ != 0) return;
  watchdog_.board().enter(operation, bytes);
  watchdog_.log_.begin(watchdog_.board().own_sequence(), operation, bytes);
}

Watchdog::Guard::~Guard() {
  if (--watchdog_.depth_ != 0) return;
  watchdog_.board().leave();
  watchdog_.log_.end();
}

Watchdog::Watchdog(int rank, int exit_code, double timeout_seconds)
    : rank_(rank),
      exit_code_(exit_code),
      own_memory_(StatusBoard::bytes_needed(1)),
      own_board_(own_memory_.data(), {rank}, 0),
      board_(&own_board_),
      timeout_seconds_(timeout_seconds),
      thread_([this] { watch(); }) {}

Watchdog::~Watchdog() {
  stop_ = true;
  thread_.join();
}

void Watchdog::join_board(StatusBoard& board, std::vector<RankPlace> places, std::unique_ptr<SideChannel> channel) {
  const std::scoped_lock lock(mutex_);
  places_ = std::move(places);
  channel_ = std::move(channel);
  board_ = &board;
}

void Watchdog::leave_board() {
  const std::scoped_lock lock(mutex_);
  places_.clear();
  channel_.reset();
  board_ = &own_board_;
}

void Watchdog::on_incident(std::function<void(const Incident&)> tell) {
  const std::scoped_lock lock(mutex_);
  tell_ = std::move(tell);
}

void Watchdog::on_loss(LossWatch watch) {
  const std::scoped_lock lock(mutex_);
  loss_ = std::move(watch);
}

void Watchdog::tell_of_loss(Loss loss) {
  if (!loss_.answer || std::exchange(loss_told_.at(static_cast<std::size_t>(loss)), true)) return;
  loss_.answer({loss, rank_, board(), places_, channel_.get()});
}

void Watchdog::check_loss() {
  if (!loss_.answer) return;
  if (loss_.called()) tell_of_loss(Loss::called);
  if (!end_is_noted()) return;
  tell_of_loss(Loss::launcher);
  end_as_the_launcher_wants();
}

void Watchdog::put_off_end_while(std::function<bool()> is_busy) {
  const std::scoped_lock lock(mutex_);
  is_busy_ = std::move(is_busy);
}

void Watchdog::watch() {
  while (!stop_) {
    bool served = false;
    {
      const std::scoped_lock lock(mutex_);
      served = channel_ != nullptr;
      if (served) channel_->serve(k_poll);
      check();
    }
    std::this_thread::sleep_for(served ? k_turn : k_poll);  // join_board() and leave_board() get theirs
  }
}

void Watchdog::check_signals() {
  if (take_request()) tell(Incident::Kind::request, "a person asked for it (SIGQUIT)", board().read());
  const NotedSignal crash = crash_under_way();
  if (crash.number == 0 || crash_told_) return;
  crash_told_ = true;
  const char* name = sigabbrev_np(crash.number);
  tell(Incident::Kind::crash, fmt::format("thread {} dies of SIG{}", crash.thread, name == nullptr ? "?" : name),
       board().read());
  crash_is_told();
}

// Outside of operations.
void Watchdog::check_progress() {
  const std::int64_t said = board().own_entered_nanoseconds() != 0 ? 0 : board().own_progress_nanoseconds();
  const double seconds = still_.update(said, StatusBoard::now_nanoseconds());
  if (seconds < timeout_seconds_) return;
  end(fmt::format("has got no further for {:.1f} s, more than comm.timeout_seconds, in: {}", seconds,
                  board().own_activity()),
      board().read(), Questions::may_come);
}

void Watchdog::check() {
  check_loss();
  check_signals();
  check_progress();
  const std::int64_t entered = board().own_entered_nanoseconds();
  const double seconds = running_.update(entered, StatusBoard::now_nanoseconds());
  if (seconds < k_fresh_seconds) patient_until_ = 0.0;
  const double timeout = timeout_seconds_;
  if (seconds < std::max(timeout, patient_until_)) return;
  const auto reports = read_all_nodes();
  const double patience = places_.empty()
                              ? (stopped_siblings().empty() ? k_slow_start_seconds - seconds : 0.0)
                              : seconds_of_patience(reports, places_.size(), board().own_sequence(), timeout);
  if (board().own_entered_nanoseconds() != entered) return;  // it has ended while others were asked
  if (patience <= 0.0) {
    const auto node_of = [&](int rank) { return places_.at(static_cast<std::size_t>(rank)).node; };
    const bool others_live = !places_.empty() && std::ranges::any_of(reports, [&](const RankReport& report) {
      return node_of(report.rank) != node_of(rank_);
    });
    end(fmt::format("waited {:.1f} s, more than comm.timeout_seconds, in {}", seconds, describe_missing(reports)),
        reports, others_live ? Questions::may_come : Questions::none);
  }
  patient_until_ = seconds + std::min(patience, std::max(1.0, timeout / 10.0));  // it may stop meanwhile
}

// A disk that does not answer, which may be why the ranks wait, must not keep this process from its end.
void end_at_the_latest(std::chrono::steady_clock::time_point latest, int exit_code) {
  try {
    std::thread([=] {
      std::this_thread::sleep_until(latest);
      std::_Exit(exit_code);
    }).detach();
  } catch (const std::system_error&) {
    return;  // no thread is to be had: it may still end by itself
  }
}

// One rank of a node tells; the others give it time to, and go on answering while there is anyone to ask, then end with
// the same code. The process that saves has the same sockets: while it asks others for their votes, and answers them,
// nothing is read here.
void Watchdog::end(const std::string& what, const std::vector<RankReport>& reports, Questions questions) {
  const auto put_off = std::chrono::duration<double>(std::min(timeout_seconds_.load(), k_longest_put_off));
  const auto until = std::chrono::steady_clock::now() + k_time_to_tell;
  end_at_the_latest(until + std::chrono::duration_cast<std::chrono::milliseconds>(put_off) + k_time_to_write,
                    exit_code_);
  // Without a board in common the first rank that still lives is told from the others by its number.
  if (places_.empty()) std::this_thread::sleep_for(k_head_start * std::min(rank_, k_most_waited_for));
  const bool first = board().claim_report();
  if (first) say_failure(rank_, what);
  std::vector<StatusBoard::Process> stopped;
  if (first) stopped = places_.empty() ? stopped_siblings() : board().stopped();
  tell_of_loss(Loss::timeout);
  const auto voted = std::chrono::steady_clock::now() + k_time_to_vote;
  tell(Incident::Kind::timeout, what, reports, stopped);
  const auto latest = std::chrono::steady_clock::now() + put_off;
  const auto is_busy = [&] { return is_busy_ && std::chrono::steady_clock::now() < latest && is_busy_(); };
  const auto is_saving = [&] { return loss_.answering && loss_.answering(); };
  while (std::chrono::steady_clock::now() < until || is_busy()) {
    const bool is_asked = channel_ && questions == Questions::may_come;
    if (first && !is_asked && !is_busy() && !is_saving()) break;
    if (channel_ && !(std::chrono::steady_clock::now() < voted && is_saving()))
      channel_->serve(k_poll);
    else
      std::this_thread::sleep_for(k_poll);
  }
  std::_Exit(exit_code_);
}

void Watchdog::tell(Incident::Kind kind, const std::string& reason, const std::vector<RankReport>& reports,
                    const std::vector<StatusBoard::Process>& stopped) {
  if (!tell_ && kind == Incident::Kind::timeout) return;  // the message has said what there is
  Incident incident{kind, reason, rank_, host_name(), reports, log_.read(), {}};
  incident.processes.push_back({rank_, ask_for_thread_stacks(getpid(), k_seconds_for_stacks)});
  for (const StatusBoard::Process& process : stopped)
    incident.processes.push_back(
        {process.rank, ask_for_thread_stacks(static_cast<pid_t>(process.number), k_seconds_for_stacks)});
  try {
    if (tell_) {
      tell_(incident);
    } else {
      say_in_short(incident);
    }
  } catch (const std::exception& error) {
    say_failure(rank_, std::string("what is known of this could not be written: ") + error.what());
  }
}

std::string Watchdog::describe_missing(const std::vector<RankReport>& reports) const {
  const std::uint64_t sequence = board().own_sequence();
  std::string what;
  for (const RankReport& report : reports)
    if (report.rank == rank_)
      what = fmt::format("{} (operation {}, {} bytes), ", report.operation, sequence, report.bytes);
  if (!places_.empty()) return what + missing_text(reports, places_, sequence);
  const std::string stopped = to_text(stopped_siblings());
  return what + (stopped.empty() ? "not all ranks have come to it; those of this node run" : "missing:" + stopped);
}

std::vector<RankReport> Watchdog::read_all_nodes() {
  std::vector<RankReport> reports = board().read();
  if (!channel_) return reports;
  const int own_node = places_[static_cast<std::size_t>(rank_)].node;
  std::set<int> answered = {own_node};
  const auto until = std::chrono::steady_clock::now() + k_time_to_ask;
  auto questions = 3 * (std::ssize(places_) - std::ranges::count(places_, own_node, &RankPlace::node));
  // A dead rank, or a lost question, costs a moment: no node's next rank is asked before all other nodes' were.
  for (std::map<int, std::size_t> silent;;) {
    const std::vector<int> ranks = ranks_to_ask(places_, answered, silent);
    if (ranks.empty()) return reports;
    for (const int rank : ranks) {
      if (questions-- <= 0 || std::chrono::steady_clock::now() >= until) return reports;
      const RankPlace& place = places_[static_cast<std::size_t>(rank)];
      const auto neighbours = std::ranges::count(places_, place.node, &RankPlace::node);
      const auto answer =
          channel_->ask(place.side_channel, static_cast<std::size_t>(neighbours) * RankReport::k_most_line_bytes);
      if (!answer) {
        ++silent[place.node];
        continue;
      }
      answered.insert(place.node);
      for (RankReport& report : RankReport::from_lines(*answer)) reports.push_back(std::move(report));
    }
  }
}

}  // namespace onebatch::comm
