// Notices that a blocking collective has gone on for too long, says who is missing and ends the process: MPI gives no way to leave it. See
// Note [Nobody waits for the dead].
#pragma once

#include "comm/side_channel.hpp"
#include "comm/status_board.hpp"

#include <atomic>
#include <memory>
#include <optional>
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

class Watchdog {
 public:
  /// `exit_code` is the process's when a deadline passes.
  Watchdog(int rank, int exit_code, StatusBoard& board);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Begins to watch. `places` has one entry per rank. `channel` may be none: then all are on one node.
  void start(std::vector<RankPlace> places, std::unique_ptr<SideChannel> channel);
  void set_timeout_seconds(double seconds) { timeout_seconds_ = seconds; }
  [[nodiscard]] double timeout_seconds() const { return timeout_seconds_; }
  /// What this rank does outside of collectives, for the others to read where it never comes.
  void set_activity(std::string_view text) { board_.set_activity(text); }

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

  /// Who has entered the operation that this rank is in, who has not, and what those were doing. Asks other nodes: takes up to some
  /// seconds.
  [[nodiscard]] std::string describe_missing();

 private:
  void watch();
  void check();
  [[noreturn]] void end(double seconds);
  [[nodiscard]] std::vector<RankReport> read_all_nodes();

  int rank_;
  int exit_code_;
  StatusBoard& board_;
  std::vector<RankPlace> places_;
  std::unique_ptr<SideChannel> channel_;
  std::atomic<double> timeout_seconds_{600.0};
  std::atomic<int> depth_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

/// The text for a report from every rank that could be asked: `sequence` is the operation that the asking rank is in.
[[nodiscard]] std::string missing_text(const std::vector<RankReport>& reports, const std::vector<RankPlace>& places,
                                       std::uint64_t sequence);

}  // namespace onebatch::comm
