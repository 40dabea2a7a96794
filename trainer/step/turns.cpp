#include "trainer/step/turns.hpp"

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <stdexcept>
#include <thread>
#include <utility>

namespace onebatch {

// Does one work after another.
class Turns::Thread {
 public:
  Thread() : thread_([this] { do_works(); }) {}
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;
  ~Thread() {
    {
      const std::scoped_lock lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void begin(std::function<void()> work) {
    {
      const std::scoped_lock lock(mutex_);
      work_ = std::move(work);
    }
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return work_ == nullptr; });
  }

 private:
  void do_works() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return ends_ || work_ != nullptr; });
      if (work_ == nullptr) return;
      lock.unlock();
      work_();
      lock.lock();
      work_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;
  bool ends_ = false;
  std::thread thread_;  // last: it takes what is above
};

Turns::Turns(c10::Device device) : device_(device) {}
Turns::~Turns() = default;

void Turns::run(std::size_t number, const Work& work, std::function<void()> all_paused) {
  all_paused_ = std::move(all_paused);
  error_ = nullptr;
  goes_on_.assign(number, 0);
  if (number == 1)
    attempt([&] { work(0); });
  else
    run_in_turn(number, work);
  if (is_over()) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Turns::pause(std::size_t mine) {
  if (goes_on_.size() == 1) {
    attempt(all_paused_);
  } else {
    let_run(k_caller);
    wait_for(mine);
  }
  if (is_over()) throw std::runtime_error("a micro-batch ends in its middle, since something else has failed");
}

void Turns::run_in_turn(std::size_t number, const Work& work) {
  const at::ThreadLocalState here;
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  for (std::size_t k = 0; k < number && !is_over(); ++k) {
    const auto body = [this, &here, stream, &work, k] {
      const at::ThreadLocalStateGuard as_there(here);
      const c10::StreamGuard on_it(stream);
      at::init_num_threads();
      wait_for(k);
      if (!is_over()) attempt([&] { work(k); });
      goes_on_[k] = 0;
      let_run(k_caller);
    };
    attempt([&] {
      if (threads_.size() == k) threads_.push_back(std::make_unique<Thread>());
      threads_[k]->begin(body);
      goes_on_[k] = 1;
    });
  }
  while (std::ranges::find(goes_on_, 1) != goes_on_.end()) {
    for (std::size_t k = 0; k < number; ++k) {
      if (goes_on_[k] == 0) continue;
      let_run(k);
      wait_for(k_caller);
    }
    if (!is_over() && std::ranges::find(goes_on_, 1) != goes_on_.end()) attempt(all_paused_);
  }
  for (const auto& thread : threads_) thread->wait();
}

void Turns::attempt(const std::function<void()>& work) {
  try {
    work();
  } catch (...) {
    if (error_ == nullptr) error_ = std::current_exception();
  }
}

void Turns::let_run(std::size_t whose) {
  {
    const std::scoped_lock lock(mutex_);
    turn_ = whose;
  }
  changed_.notify_all();
}

void Turns::wait_for(std::size_t whose) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return turn_ == whose; });
}

}  // namespace onebatch
