// What a micro-batch keeps while others are computed: on the device, or in host memory where the device has no room for
// it.
#pragma once

#include "trainer/base/transfer.hpp"
#include "trainer/graph/tape.hpp"

#include <list>
#include <utility>

namespace onebatch {

enum class SavedPlace { device, host };

/// Tensors by value. In the host they are outside of the device's memory (and of its simulated budget; pinned for a
/// GPU), and come back as copies. They go and come beside a GPU's kernels: what goes holds its memory on the device
/// until let_go(), and what comes is waited for, unless fetch() has asked for it while there was other work.
class SavedValues {
 public:
  SavedValues(SavedPlace place, c10::Device device) : place_(place), device_(device) {}

  void put(Value value, const at::Tensor& tensor);
  /// Throws std::out_of_range where there is none.
  [[nodiscard]] at::Tensor get(Value value);
  /// Begins a copy for a later get() of it, if it is there, and in the host.
  void fetch(Value value);
  /// Gives back the memory of what has gone to the host.
  void let_go() { going_.clear(); }
  /// Of what was fetched and not taken.
  void forget_fetched() { coming_.clear(); }
  [[nodiscard]] bool has(Value value) const { return tensors_.contains(value); }
  void erase(Value value);
  /// Adds to what is there.
  void add(Value value, const at::Tensor& tensor);
  at::Tensor take(Value value);
  [[nodiscard]] std::size_t bytes() const;

 private:
  void forget_fetched(Value value);

  SavedPlace place_;
  c10::Device device_;
  Environment tensors_;
  std::list<CopyBeside> going_;
  std::list<std::pair<Value, CopyBeside>> coming_;
};

}  // namespace onebatch
