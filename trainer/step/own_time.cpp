#include "trainer/step/own_time.hpp"

#include <utility>

namespace onebatch {

void OwnTime::start() {
  begun_ = Clock::now();
  begun_there_ = device_.mark();
  left_out_.clear();
}

void OwnTime::stop() {
  pace();
  stopped_seconds_ += seconds();
}

void OwnTime::leave_out(const DataWait& wait) {
  begun_ += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(wait.seconds));
  left_out_.push_back(wait);
}

void OwnTime::finish(LocalSums& sums, const at::Tensor& numbers) {
  pace();
  sums.compute_seconds = stopped_seconds_;
  sums.unread = {numbers, begun_there_, device_.mark(), left_out_};
}

double OwnTime::seconds() const {
  return std::chrono::duration<double>(Clock::now() - begun_).count();
}

void OwnTime::pace() {
  device_.pace(seconds(), std::exchange(completed_, {}));
}

}  // namespace onebatch
