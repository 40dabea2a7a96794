// Honest work of a rank that takes longer than others may wait for one that has stopped.
#pragma once

#include "comm/communicator.hpp"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace onebatch::comm {

/// While it lives this rank says again and again what it does, as long as the process computes, reads or writes: those
/// that wait for it in a collective stay patient. A process that is stopped, dead or waits itself says nothing.
class LongWork {
 public:
  /// `may_sleep`: for so long from now on it goes on also where it neither computes nor reads nor writes, as who waits
  /// for a lock.
  LongWork(Communicator& ranks, std::string what, std::chrono::seconds may_sleep = std::chrono::seconds(0));
  ~LongWork();
  LongWork(const LongWork&) = delete;
  LongWork& operator=(const LongWork&) = delete;

 private:
  void say();

  Communicator& ranks_;
  std::string what_;
  std::chrono::steady_clock::time_point may_sleep_until_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace onebatch::comm
