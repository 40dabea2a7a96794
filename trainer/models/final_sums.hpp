// Sums of gradients that native code is done with while it goes on: see python/onebatch/announcing.py.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>

namespace onebatch {

/// While it lives, native code on this thread tells of each sum, by its place among all, to which it adds nothing more.
/// Not all need be told of. Where nobody listens nothing is done.
class FinalSums {
 public:
  explicit FinalSums(std::function<void(std::size_t)> told);
  ~FinalSums();
  FinalSums(const FinalSums&) = delete;
  FinalSums& operator=(const FinalSums&) = delete;

  /// What `told` has thrown, which native code cannot hand on. After that it was not called again.
  void rethrow() const;

  /// Likewise of the one that lives on this thread, if any does.
  static void tell(std::size_t place);

 private:
  std::function<void(std::size_t)> told_;
  FinalSums* before_;
  std::exception_ptr failure_;
};

}  // namespace onebatch
