// What an operator of the trainer throws within native code: that calls operators which return nothing without a look
// at whether they have failed.
#pragma once

#include <exception>

namespace onebatch {

/// While it lives it keeps the first failure that is told of on its thread. The innermost of a thread hears of it.
class NativeFailure {
 public:
  NativeFailure();
  ~NativeFailure();
  NativeFailure(const NativeFailure&) = delete;
  NativeFailure& operator=(const NativeFailure&) = delete;

  [[nodiscard]] bool was_met() const { return error_ != nullptr; }
  [[noreturn]] void rethrow() const { std::rethrow_exception(error_); }

  /// Tells of what `work` throws, and hands it on.
  template <typename Work>
  static auto told(const Work& work) {
    try {
      return work();
    } catch (...) {
      keep(std::current_exception());
      throw;
    }
  }

 private:
  static void keep(std::exception_ptr error);

  NativeFailure* before_;
  std::exception_ptr error_;
};

}  // namespace onebatch
