#include "comm/long_work.hpp"

#include "comm/watchdog.hpp"

#include <ctime>

#include <algorithm>
#include <chrono>

namespace onebatch::comm {
namespace {

constexpr double k_busy_share = 0.1;  // of the time between two words that the process has to have computed

double processor_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

}  // namespace

LongWork::LongWork(World& world, std::string what) : world_(world), what_(std::move(what)) {
  world_.set_activity(what_);
  if (world_.watchdog() != nullptr) thread_ = std::thread([this] { say(); });
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
  const double every_seconds = std::clamp(world_.watchdog()->timeout_seconds() / 8.0, 0.05, 5.0);
  double before = processor_seconds();
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, std::chrono::duration<double>(every_seconds), [this] { return over_; })) {
    const double now = processor_seconds();
    if (now - before >= k_busy_share * every_seconds) world_.set_activity(what_);
    before = now;
  }
}

}  // namespace onebatch::comm
