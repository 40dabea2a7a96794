// The one place that all collectives of a process go through, in one order.
#pragma once

#include "comm/communicator.hpp"

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace onebatch::comm {

/// Runs collectives in the order in which they were posted: on a thread of its own, or, without one, at once on the
/// caller's. MPI is then called by one thread at a time, and every rank calls the same things in the same order.
class CollectiveQueue {
 public:
  enum class Thread { own, callers };
  explicit CollectiveQueue(Thread thread);
  /// Waits for what was posted; its failures are lost.
  ~CollectiveQueue();
  CollectiveQueue(const CollectiveQueue&) = delete;
  CollectiveQueue& operator=(const CollectiveQueue&) = delete;

  [[nodiscard]] bool in_background() const { return thread_.joinable(); }
  /// Does not wait. After a failure what is posted is dropped until wait() has thrown it. Any thread may post.
  void post(std::function<void()> collective);
  /// Until everything posted is done. Throws the first failure since the last wait.
  void wait();

 private:
  void serve();
  void attempt(const std::function<void()>& collective);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> posted_;
  bool busy_ = false;
  bool stop_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

/// A communicator whose calls go through a queue, behind whatever was posted before.
class QueuedCommunicator final : public Communicator {
 public:
  /// Both stay the caller's.
  QueuedCommunicator(Communicator& inner, CollectiveQueue& queue) : inner_(inner), queue_(queue) {}

  [[nodiscard]] int rank() const override { return inner_.rank(); }
  [[nodiscard]] int size() const override { return inner_.size(); }
  [[nodiscard]] std::string_view backend() const override { return inner_.backend(); }
  void all_reduce(void* buffer, std::size_t count, ScalarType type, ReduceOp op) override;
  void all_gather(const void* send, void* receive, std::size_t bytes_per_rank) override;
  void broadcast(void* buffer, std::size_t bytes, int root) override;
  void barrier() override;
  std::byte* allocate(std::size_t bytes) override;
  [[nodiscard]] Watchdog* watchdog() override { return inner_.watchdog(); }
  void close() override;
  [[noreturn]] void abort(std::string_view reason, int exit_code) override;

 private:
  void run(std::function<void()> collective);

  Communicator& inner_;
  CollectiveQueue& queue_;
};

}  // namespace onebatch::comm
