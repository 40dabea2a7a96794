// A way to ask another node's ranks what they are doing that does not go through MPI: UDP, answered by each process's
// watchdog.
#pragma once

#include "comm/siphash.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace onebatch::comm {

/// Owns the sockets, one for each address that it is given: it listens nowhere else. Questions and answers are one
/// datagram each; a lost one is asked for again. A datagram that is not signed with the run's key is dropped; the key
/// itself is in none. An answer is never longer than its question, so that nobody can use this process to flood
/// another.
class SideChannel {
 public:
  /// `answer` makes what is told to whoever asks. `key` is the run's, from make_key() of one rank.
  SideChannel(const SipKey& key, const std::vector<std::string>& addresses, std::function<std::string()> answer);
  ~SideChannel();
  SideChannel(const SideChannel&) = delete;
  SideChannel& operator=(const SideChannel&) = delete;

  /// 128 random bits; all 0 where the machine gives none: then nobody is listened to.
  static SipKey make_key();

  /// "address:port address:port …": where others reach this process.
  [[nodiscard]] std::string address() const;

  /// Answers what has come in, waiting up to `wait` for something to come.
  void serve(std::chrono::milliseconds wait);
  /// What the process at `address` answers within a moment, at most so many bytes, or nothing. Goes on answering others
  /// meanwhile.
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
  SipKey key_;
  std::function<std::string()> answer_;
  std::uint32_t asked_;  // the number of the last question: what comes late answers an earlier one, what is sent again
                         // another rank's
};

}  // namespace onebatch::comm
