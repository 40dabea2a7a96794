// Micro-batches of native code that wait for each other in the middle of it.
//
// Note [Native code in turns]. A compiled program is one call for forward and backward, and with shared statistics each
// of its BatchNorms waits for all micro-batches of the step. So each micro-batch's call has a thread, and one at a time
// runs, until its BatchNorm has given its sums to the trainer: then the next one's turn comes, and after the last one
// the sums are exchanged with other ranks, by the thread that all collectives come from. What is computed is what one
// thread would compute, and all of them use the same processors. The exchanges are those of Note [Exact BatchNorm], in
// the same order, so that ranks may run native code or the program as they like. Work k is always the same thread's:
// what libraries keep for each thread, as cuDNN's plans and OpenMP's threads, is made once, and not in each step
// (LibTorch even leaks the plans of a thread that ends).
#pragma once

#include <c10/core/Device.h>

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace onebatch {

/// Works, each on a thread of its own, of which one at a time runs, in turn, until it pauses. One alone runs on the
/// caller's.
class Turns {
 public:
  using Work = std::function<void(std::size_t)>;

  explicit Turns(c10::Device device);
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;
  ~Turns();

  /// Runs work(0) to work(number - 1), which pause equally often, and what is to be done when all have, on the caller's
  /// thread. Returns when all have ended; then throws the first exception that one of these has thrown.
  void run(std::size_t number, const Work& work, std::function<void()> all_paused);

  /// For a work: until all the others have come as far, and what is done then is done. Throws where something has been
  /// thrown elsewhere, so that the work ends.
  void pause(std::size_t mine);

  /// Whether something was thrown: nobody asks for what the works make.
  [[nodiscard]] bool is_over() const { return error_ != nullptr; }

 private:
  static constexpr std::size_t k_caller = static_cast<std::size_t>(-1);

  class Thread;
  void run_in_turn(std::size_t number, const Work& work);
  void attempt(const std::function<void()>& work);
  void let_run(std::size_t whose);
  void wait_for(std::size_t whose);

  c10::Device device_;
  std::vector<std::unique_ptr<Thread>> threads_;  // by work
  // All this is the business of whoever's turn it is.
  std::function<void()> all_paused_;
  std::vector<char> goes_on_;
  std::exception_ptr error_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t turn_ = k_caller;
};

}  // namespace onebatch
