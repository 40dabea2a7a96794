// A world of one: every collective is already done.
#pragma once

#include "comm/communicator.hpp"

namespace onebatch::comm {

class LocalCommunicator final : public Communicator {
 public:
  explicit LocalCommunicator(Watchdog* watchdog = nullptr) : watchdog_(watchdog) {}
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  [[nodiscard]] std::string_view backend() const override { return "local"; }
  void all_reduce(void* /*buffer*/, std::size_t /*count*/, ScalarType /*type*/, ReduceOp /*op*/) override {}
  void all_gather(const void* send, void* receive, std::size_t bytes_per_rank) override;
  void broadcast(void* /*buffer*/, std::size_t /*bytes*/, int /*root*/) override {}
  void barrier() override {}
  [[nodiscard]] Watchdog* watchdog() override { return watchdog_; }
  void close() override {}
  [[noreturn]] void abort(std::string_view reason, int exit_code) override;

 private:
  Watchdog* watchdog_;
};

/// Says "onebatch: rank R (host): reason" in one write, so that ranks' lines do not mix: to standard error.
void say_failure(int rank, std::string_view reason);
/// From now on by `function` instead, which any thread may call.
void say_failures_by(void (*function)(std::string_view text));

}  // namespace onebatch::comm
