// What goes on, said whenever nothing else has been for a while: nobody has to wonder whether it has stopped.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace onebatch::launch {

class Heartbeat {
 public:
  /// `activity` says what the process does; it is asked by a thread of this object until its end.
  explicit Heartbeat(std::function<std::string()> activity);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

 private:
  void beat();

  std::function<std::string()> activity_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace onebatch::launch
