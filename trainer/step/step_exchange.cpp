#include "trainer/step/step_exchange.hpp"

#include "trainer/base/fault_point.hpp"

namespace onebatch {

StepExchange::StepExchange(comm::Communicator& ranks, std::function<void()> before, std::function<void()> after)
    : ranks_(ranks), before_(std::move(before)), after_(std::move(after)) {}

void StepExchange::expect(const std::vector<std::size_t>& counts) {
  expected_.insert(expected_.end(), counts.begin(), counts.end());
}

std::vector<double> StepExchange::all(std::vector<double> mine, double failed) {
  ++next_;
  mine.push_back(failed);
  std::vector<double> received(mine.size() * static_cast<std::size_t>(ranks_.size()));
  ranks_.all_gather(mine.data(), received.data(), mine.size() * sizeof(double));
  return received;
}

std::vector<double> StepExchange::gather(const std::vector<double>& mine) {
  if (is_alone()) return mine;
  if (mine.size() != expected_.at(next_)) throw std::logic_error("an exchange of other numbers than the ranks expect");
  fault_point("exchange", static_cast<std::int64_t>(next_));
  before_();
  const std::vector<double> received = all(mine, 0.0);
  after_();
  const auto width = static_cast<std::ptrdiff_t>(mine.size());
  std::vector<double> numbers;
  bool failed = false;
  for (auto rank = received.begin(); rank != received.end(); rank += width + 1) {
    failed |= rank[width] != 0.0;
    numbers.insert(numbers.end(), rank, rank + width);
  }
  if (failed) throw StepAbandoned();
  return numbers;
}

void StepExchange::report_failure() {
  if (ranks_.size() > 1 && next_ < expected_.size()) all(std::vector<double>(expected_[next_], 0.0), 1.0);
}

}  // namespace onebatch
