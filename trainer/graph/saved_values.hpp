// What a micro-batch keeps while others are computed: on the device, or in host memory where the device has no room for
// it.
#pragma once

#include "trainer/graph/tape.hpp"

namespace onebatch {

enum class SavedPlace { device, host };

/// Tensors by value. In the host they are outside of the device's memory (and of its simulated budget; pinned for a
/// GPU), and come back as copies.
class SavedValues {
 public:
  SavedValues(SavedPlace place, c10::Device device) : place_(place), device_(device) {}

  void put(Value value, const at::Tensor& tensor);
  /// Throws std::out_of_range where there is none.
  [[nodiscard]] at::Tensor get(Value value) const;
  [[nodiscard]] bool has(Value value) const { return tensors_.contains(value); }
  void erase(Value value) { tensors_.erase(value); }
  /// Adds to what is there.
  void add(Value value, const at::Tensor& tensor);
  at::Tensor take(Value value);
  [[nodiscard]] std::size_t bytes() const;

 private:
  SavedPlace place_;
  c10::Device device_;
  Environment tensors_;
};

}  // namespace onebatch
