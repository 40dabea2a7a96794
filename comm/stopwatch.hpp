// How long something takes.
#pragma once

#include <chrono>

namespace onebatch::comm {

/// Runs from where it is made, on a clock that nobody sets.
class Stopwatch {
 public:
  [[nodiscard]] double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace onebatch::comm
