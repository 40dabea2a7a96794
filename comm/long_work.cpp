#include "comm/long_work.hpp"

#include "comm/watchdog.hpp"

#include <ctime>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>

namespace onebatch::comm {
namespace {

constexpr double k_busy_share = 0.1;  // of the time between two words that the process has to have computed

double processor_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

// To and from disks.
std::int64_t moved_bytes() {
  std::ifstream in("/proc/self/io");
  std::string name;
  std::int64_t bytes = 0;
  std::int64_t sum = 0;
  while (in >> name >> bytes) {
    if (name == "read_bytes:" || name == "write_bytes:") sum += bytes;
  }
  return sum;
}

}  // namespace

LongWork::LongWork(Communicator& ranks, std::string what, std::chrono::seconds may_sleep)
    : ranks_(ranks), what_(std::move(what)), may_sleep_until_(std::chrono::steady_clock::now() + may_sleep) {
  ranks_.set_activity(what_);
  if (ranks_.watchdog() != nullptr) thread_ = std::thread([this] { say(); });
}

LongWork::~LongWork() {
  {
    const std::scoped_lock lock(mutex_);
    over_ = true;
  }
  ended_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void LongWork::say() {
  const double every_seconds = std::clamp(ranks_.watchdog()->timeout_seconds() / 8.0, 0.05, 5.0);
  double before = processor_seconds();
  std::int64_t moved_before = moved_bytes();
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, std::chrono::duration<double>(every_seconds), [this] { return over_; })) {
    const double now = processor_seconds();
    const std::int64_t moved = moved_bytes();
    const bool works = now - before >= k_busy_share * every_seconds || moved != moved_before;
    if (works || std::chrono::steady_clock::now() < may_sleep_until_) ranks_.set_activity(what_);
    before = now;
    moved_before = moved;
  }
}

}  // namespace onebatch::comm
