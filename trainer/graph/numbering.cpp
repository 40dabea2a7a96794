#include "trainer/graph/numbering.hpp"

#include "trainer/models/keyed_randomness.hpp"

#include <algorithm>

namespace onebatch {

const void* storage_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

Numbering::Extent Numbering::extent_of(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return {};
  return {tensor.sizes().vec(), tensor.strides().vec(), tensor.storage_offset(), tensor.scalar_type()};
}

Value Numbering::fresh(const at::Tensor& tensor) {
  const auto value = static_cast<Value>(values_.size());
  TapeValue made;
  made.requires_grad = tensor.requires_grad();
  made.floating = tensor.is_floating_point() || tensor.is_complex();
  made.bytes = static_cast<std::int64_t>(tensor.nbytes());
  made.channels = tensor.dim() >= 2 ? tensor.size(1) : 0;
  made.storage = storage_of(tensor);
  if (tensor.has_storage()) storages_.emplace_back(tensor.storage().getWeakStorageImpl());
  values_.push_back(made);
  extents_.push_back(extent_of(tensor));
  current_[tensor.unsafeGetTensorImpl()] = value;
  addresses_.emplace_back(tensor.getIntrusivePtr());
  return value;
}

Value Numbering::of(const at::Tensor& tensor) const {
  const auto found = current_.find(tensor.unsafeGetTensorImpl());
  return found == current_.end() ? k_no_value : found->second;
}

Value Numbering::sharing_memory_with(const at::Tensor& tensor) const {
  const void* storage = storage_of(tensor);
  if (storage == nullptr) return k_no_value;
  const Extent extent = extent_of(tensor);
  for (std::size_t i = values_.size(); i-- > 0;) {
    if (values_[i].storage == storage && extents_[i] == extent) return static_cast<Value>(i);
  }
  return k_no_value;
}

bool Numbering::knows_memory_of(const at::Tensor& tensor) const {
  const void* storage = storage_of(tensor);
  return storage != nullptr &&
         std::ranges::any_of(values_, [&](const TapeValue& value) { return value.storage == storage; });
}

const void* Numbering::memory_of(Value value) const {
  const TapeValue& made = values_[static_cast<std::size_t>(value)];
  return made.storage != nullptr ? made.storage : &made;
}

Sources sources_of(const TapeCall& call, const Tape& tape, const Numbering& numbering) {
  Sources sources;
  std::set<const void*> memory;
  const auto want = [&](Value value) {
    sources.all.insert(value);
    memory.insert(numbering.memory_of(value));
  };
  for_each_read(call, want);
  for (auto before = tape.calls.rbegin(); before != tape.calls.rend(); ++before) {
    bool makes = std::ranges::any_of(before->writes,
                                     [&](Value written) { return memory.contains(numbering.memory_of(written)); });
    for_each_made(*before, [&](Value made) { makes |= sources.all.contains(made); });
    if (!makes) continue;
    sources.random |= is_keyed_random(before->op.operator_name().name);
    for_each_read(*before, want);
  }
  sources.data = std::ranges::any_of(tape.data, [&](Value value) { return sources.all.contains(value); });
  return sources;
}

std::set<Value> changed_by(const Tape& tape, const std::function<Value(Value)>& root_of) {
  std::set<Value> changed;
  for (const TapeCall& call : tape.calls) {
    for (std::size_t i = 0; i < call.arguments.size(); ++i) {
      const bool updated = call.arguments[i].written || (is_batch_norm(call) && (i == 3 || i == 4));
      for (const Value value : call.arguments[i].values) {
        if (updated && value != k_no_value) changed.insert(root_of(value));
      }
    }
  }
  changed.erase(k_no_value);
  return changed;
}

}  // namespace onebatch
