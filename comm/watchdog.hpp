// Notices that a blocking call has gone on for too long, says who is missing and ends the process: MPI gives no way to
// leave it. Watches from before MPI's start to after its end. See Note [Nobody waits for the dead].
#pragma once

#include "comm/aligned_memory.hpp"
#include "comm/incident.hpp"
#include "comm/side_channel.hpp"
#include "comm/status_board.hpp"

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace onebatch::comm {

/// Where a rank runs, and how its node is asked when nothing else goes.
struct RankPlace {
  std::string host;
  int node = 0;
  std::string side_channel;
};

/// How this rank comes to know that the run ends for want of another.
enum class Loss {
  launcher,  // it ends the ranks that are left
  timeout,   // this rank's own
  called     // a rank of this node knows
};

/// What the watching thread lends while it tells of a loss.
struct LossCall {
  Loss loss = Loss::launcher;
  int rank = 0;
  const StatusBoard& board;
  const std::vector<RankPlace>& places;  // of every rank
  SideChannel* channel = nullptr;        // none: all ranks are on the board
};

/// Who is to save what can be saved.
struct LossWatch {
  std::function<bool()> called;                 // by another rank of this node
  std::function<void(const LossCall&)> answer;  // told once of each kind
  std::function<bool()> answering;              // what it has begun is not done yet
};

/// How long a call has lasted, without the time in which this process was suspended.
class RunningTime {
 public:
  /// Seconds of the call that was entered at `entered`, 0 for none; negative for none. Both are nanoseconds of one
  /// clock. To be asked many times a second: a longer gap between two questions is a suspension, of which a second
  /// counts.
  double update(std::int64_t entered_nanoseconds, std::int64_t now_nanoseconds);

 private:
  std::int64_t entered_ = 0;
  std::int64_t asked_ = 0;
  double seconds_ = 0.0;
};

class Watchdog {
 public:
  /// Watches from now on, by itself: other ranks are not known yet. `exit_code` is the process's when a deadline
  /// passes.
  Watchdog(int rank, int exit_code, double timeout_seconds);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// From now on with the node's board, which has to live until leave_board(). `places` has one entry per rank.
  /// `channel` may be none: then all ranks are on the board. Not inside a guard.
  void join_board(StatusBoard& board, std::vector<RankPlace> places, std::unique_ptr<SideChannel> channel);
  /// By itself again. Not inside a guard.
  void leave_board();
  void set_timeout_seconds(double seconds) { timeout_seconds_ = seconds; }
  [[nodiscard]] double timeout_seconds() const { return timeout_seconds_; }
  /// What this rank does outside of collectives, for the others to read where it never comes. Said again and again by
  /// long work, it keeps those that wait for it patient.
  void set_activity(std::string_view text) { board().set_activity(text); }
  /// What it has said last, from any thread; not inside join_board() and leave_board().
  [[nodiscard]] std::string activity() const { return board().own_activity(); }
  /// A rank that has said what it does, and is in no operation, is stuck where it has said nothing more for the
  /// timeout: it is ended too.
  void note_progress() { board().note_progress(); }
  /// Who writes down what is known when a deadline passes, a thread crashes or a person asks
  /// (note_crashes_and_requests). Called by the watching thread. Not inside a guard.
  void on_incident(std::function<void(const Incident&)> tell);

  /// From now on a rank that the launcher ends, that has waited in vain or is called tells `watch` before it ends; an
  /// empty one: no longer. Not inside a guard.
  void on_loss(LossWatch watch);
  /// As long as it is true, a process that this watchdog ends goes on for a while, for its deadline once more at most:
  /// a file that is being written is written to its end. Called by the watching thread. Not inside a guard.
  void put_off_end_while(std::function<bool()> is_busy);

  /// Stands guard over one operation while it lives. Inside another guard it does nothing.
  class Guard {
   public:
    Guard(Watchdog& watchdog, const char* operation, std::size_t bytes);
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    Watchdog& watchdog_;
  };

 private:
  [[nodiscard]] StatusBoard& board() const { return *board_; }
  void watch();
  void check();
  void check_signals();
  void check_progress();
  void check_loss();
  void tell_of_loss(Loss loss);
  // Whether ranks of other nodes may still ask this one where its node's are.
  enum class Questions { may_come, none };
  [[noreturn]] void end(const std::string& what, const std::vector<RankReport>& reports, Questions questions);
  void tell(Incident::Kind kind, const std::string& reason, const std::vector<RankReport>& reports,
            const std::vector<StatusBoard::Process>& stopped = {});
  // Who has entered the operation that this rank is in, who has not, and what those were doing.
  [[nodiscard]] std::string describe_missing(const std::vector<RankReport>& reports) const;
  // Asks other nodes: takes up to some seconds.
  [[nodiscard]] std::vector<RankReport> read_all_nodes();

  int rank_;
  int exit_code_;
  AlignedMemory own_memory_;
  StatusBoard own_board_;
  std::atomic<StatusBoard*> board_;
  std::mutex mutex_;  // of the watching thread's own: places, channel, and which board it reads
  std::vector<RankPlace> places_;
  std::unique_ptr<SideChannel> channel_;
  OperationLog log_;
  std::function<void(const Incident&)> tell_;
  LossWatch loss_;
  std::array<bool, 3> loss_told_{};  // by kind
  std::function<bool()> is_busy_;
  RunningTime running_;
  RunningTime still_;
  bool crash_told_ = false;
  double patient_until_ = 0.0;  // in seconds of the operation under way
  std::atomic<double> timeout_seconds_;
  std::atomic<int> depth_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

/// How much longer to wait, in seconds, in the operation `sequence`: while a rank that has not entered it is at work
/// and has said so within `timeout_seconds`, or one has entered the operation that it is in within them. 0 where a
/// process is stopped or gone, or a rank could not be asked.
[[nodiscard]] double seconds_of_patience(const std::vector<RankReport>& reports, std::size_t num_ranks,
                                         std::uint64_t sequence, double timeout_seconds);

/// Whom to ask, any of whom answers for all of its node: one rank of each node that is not in `answered`. `silent`: of
/// each node how many have not answered, so that it is another's turn. None where all have answered.
[[nodiscard]] std::vector<int> ranks_to_ask(const std::vector<RankPlace>& places, const std::set<int>& answered,
                                            const std::map<int, std::size_t>& silent);

/// The text for a report from every rank that could be asked: `sequence` is the operation that the asking rank is in.
[[nodiscard]] std::string missing_text(const std::vector<RankReport>& reports, const std::vector<RankPlace>& places,
                                       std::uint64_t sequence);

}  // namespace onebatch::comm
