// A way to ask another node's ranks what they are doing that does not go through MPI: UDP, answered by each process's watchdog.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace onebatch::comm {

/// Owns the sockets, one for each address that it tells: it listens nowhere else. Questions and answers are one datagram each; a lost one
/// is asked for again. A datagram without the run's key is dropped, and an answer is never longer than its question, so that nobody can use
/// this process to flood another.
class SideChannel {
 public:
  enum class Reach { other_hosts, this_host_too };

  /// `answer` makes what is told to whoever asks. `key` is the run's, from make_key() of one rank.
  SideChannel(std::string key, Reach reach, std::function<std::string()> answer);
  ~SideChannel();
  SideChannel(const SideChannel&) = delete;
  SideChannel& operator=(const SideChannel&) = delete;

  /// 128 random bits.
  static std::string make_key();

  /// "address:port address:port …": where others reach this process.
  [[nodiscard]] std::string address() const;

  /// Answers what has come in, waiting up to `wait` for something to come.
  void serve(std::chrono::milliseconds wait);
  /// What the process at `address` answers within a moment, at most so many bytes, or nothing. Goes on answering others meanwhile.
  [[nodiscard]] std::optional<std::string> ask(const std::string& address, std::size_t most_bytes);

 private:
  struct Socket {
    int descriptor = -1;
    std::string address;
  };

  void listen_on(const std::string& host);
  [[nodiscard]] std::vector<int> wait_for_datagrams(std::chrono::milliseconds wait) const;
  std::optional<std::string> receive(int descriptor);

  std::vector<Socket> sockets_;
  std::string key_;
  std::function<std::string()> answer_;
  std::uint32_t asked_ = 0;  // the number of the last question: what comes late answers an earlier one
};

}  // namespace onebatch::comm
