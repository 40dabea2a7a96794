#include "comm/collective_queue.hpp"

#include "comm/handler_stack.hpp"

#include <utility>

namespace onebatch::comm {

CollectiveQueue::CollectiveQueue(Thread thread) {
  if (thread == Thread::own) thread_ = std::thread([this] { serve(); });
}

CollectiveQueue::~CollectiveQueue() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void CollectiveQueue::post(std::function<void()> collective) {
  if (!in_background()) return attempt(collective);
  {
    const std::scoped_lock lock(mutex_);
    posted_.push_back(std::move(collective));
  }
  changed_.notify_all();
}

void CollectiveQueue::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return posted_.empty() && !busy_; });
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

// What follows a failed collective would meet the wrong one of the other ranks.
void CollectiveQueue::attempt(const std::function<void()>& collective) {
  {
    const std::scoped_lock lock(mutex_);
    if (failure_) return;
  }
  std::exception_ptr failure;
  try {
    collective();
  } catch (...) {
    failure = std::current_exception();
  }
  const std::scoped_lock lock(mutex_);
  if (failure) failure_ = failure;
}

void CollectiveQueue::serve() {
  const HandlerStack room;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !posted_.empty(); });
    if (posted_.empty()) return;
    const std::function<void()> collective = std::move(posted_.front());
    posted_.pop_front();
    busy_ = true;
    lock.unlock();
    attempt(collective);
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

void QueuedCommunicator::run(std::function<void()> collective) {
  queue_.post(std::move(collective));
  queue_.wait();
}

void QueuedCommunicator::all_reduce(void* buffer, std::size_t count, ScalarType type, ReduceOp op) {
  run([=, this] { inner_.all_reduce(buffer, count, type, op); });
}

void QueuedCommunicator::all_gather(const void* send, void* receive, std::size_t bytes_per_rank) {
  run([=, this] { inner_.all_gather(send, receive, bytes_per_rank); });
}

void QueuedCommunicator::broadcast(void* buffer, std::size_t bytes, int root) {
  run([=, this] { inner_.broadcast(buffer, bytes, root); });
}

void QueuedCommunicator::barrier() {
  run([this] { inner_.barrier(); });
}

std::byte* QueuedCommunicator::allocate(std::size_t bytes) {
  std::byte* memory = nullptr;
  run([&] { memory = inner_.allocate(bytes); });
  return memory;
}

void QueuedCommunicator::close() {
  run([this] { inner_.close(); });
}

// Not behind what is stuck: it is called because something is.
void QueuedCommunicator::abort(std::string_view reason, int exit_code) {
  inner_.abort(reason, exit_code);
  std::terminate();
}

}  // namespace onebatch::comm
