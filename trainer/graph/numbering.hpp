// Tensors as values of a tape: by identity and version, and by the memory that they share.
#pragma once

#include "trainer/graph/tape.hpp"

#include <set>

namespace onebatch {

/// A tensor's storage; null where it has none.
const void* storage_of(const at::Tensor& tensor);

/// Numbers tensors as they come up, into a tape's values. A tensor's memory may go while this lives, its address does
/// not come back for another, which would be taken for it.
class Numbering {
 public:
  explicit Numbering(std::vector<TapeValue>& values) : values_(values) {}

  /// A new value for the tensor as it is now: a new tensor, or one that was just written to.
  Value fresh(const at::Tensor& tensor);
  /// The tensor's latest value; k_no_value where it has none.
  [[nodiscard]] Value of(const at::Tensor& tensor) const;
  /// The latest value that is the same part of the same memory; k_no_value where there is none.
  [[nodiscard]] Value sharing_memory_with(const at::Tensor& tensor) const;
  /// Whether any value lies in the tensor's memory.
  [[nodiscard]] bool knows_memory_of(const at::Tensor& tensor) const;
  /// Equal for values that share memory.
  [[nodiscard]] const void* memory_of(Value value) const;

 private:
  struct Extent {
    std::vector<std::int64_t> sizes;
    std::vector<std::int64_t> strides;
    std::int64_t offset = 0;
    at::ScalarType type = at::kFloat;
    bool operator==(const Extent&) const = default;
  };
  static Extent extent_of(const at::Tensor& tensor);

  std::vector<TapeValue>& values_;
  std::vector<Extent> extents_;  // by value
  std::unordered_map<const c10::TensorImpl*, Value> current_;
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> addresses_;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> storages_;
};

/// What a value was computed from.
struct Sources {
  bool data = false;
  bool random = false;  // drawn by sample
  std::set<Value> all;
};

/// Of what a call takes, by walking back through the calls before it; a write into memory that a value shares counts.
Sources sources_of(const TapeCall& call, const Tape& tape, const Numbering& numbering);

/// What outlives a forward and is written to in it, by its root: by operators that say so, and as BatchNorm's running
/// statistics.
std::set<Value> changed_by(const Tape& tape, const std::function<Value(Value)>& root_of);

}  // namespace onebatch
