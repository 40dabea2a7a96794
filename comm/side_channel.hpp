// A way to ask another node's ranks what they are doing that does not go through MPI: one UDP socket per process, answered by its watchdog.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace onebatch::comm {

/// Owns the socket. Questions and answers are one datagram each; a lost one is asked for again.
class SideChannel {
 public:
  /// `answer` makes what is told to whoever asks. `key` keeps runs apart: a datagram without it is dropped.
  SideChannel(std::string key, std::function<std::string()> answer);
  ~SideChannel();
  SideChannel(const SideChannel&) = delete;
  SideChannel& operator=(const SideChannel&) = delete;

  /// "port address address …": where other nodes reach this process.
  [[nodiscard]] std::string address() const;

  /// Answers what has come in, waiting up to `wait` for something to come.
  void serve(std::chrono::milliseconds wait);
  /// What the process at `address` answers, asked `tries` times, or nothing. Goes on answering others meanwhile.
  [[nodiscard]] std::optional<std::string> ask(const std::string& address, int tries);

 private:
  [[nodiscard]] bool wait_for_datagram(std::chrono::milliseconds wait) const;
  std::optional<std::string> receive();
  void send(std::string_view kind, std::string_view text, const void* to, unsigned length);

  int socket_ = -1;
  int port_ = 0;
  std::string key_;
  std::function<std::string()> answer_;
};

}  // namespace onebatch::comm
