#include "trainer/models/exported_aliases.hpp"

#include <c10/core/TensorImpl.h>

namespace onebatch {

SharedMemory::Value SharedMemory::fresh() {
  parents_.push_back(parents_.size());
  written_.push_back(false);
  return parents_.back();
}

SharedMemory::Value SharedMemory::of(Slot slot, std::size_t block) {
  const auto [found, is_new] = of_slots_.try_emplace({block, slot}, parents_.size());
  return is_new ? fresh() : found->second;
}

SharedMemory::Value SharedMemory::of(const Operand& operand, std::size_t block) {
  if (operand.slot != k_no_slot) return of(operand.slot, block);
  if (!operand.constant.isTensor() || !operand.constant.toTensor().defined()) return fresh();
  const void* tensor = operand.constant.toTensor().unsafeGetTensorImpl();
  const auto [found, is_new] = of_tensors_.try_emplace(tensor, parents_.size());
  return is_new ? fresh() : found->second;
}

SharedMemory::Value SharedMemory::root(Value value) const {
  while (parents_[value] != value) value = parents_[value];
  return value;
}

void SharedMemory::share(Value one, Value other) {
  const Value a = root(one);
  const Value b = root(other);
  if (a == b) return;
  parents_[b] = a;
  written_[a] = written_[a] || written_[b];
}

bool SharedMemory::is_written(Value value) const {
  return written_[root(value)];
}

void SharedMemory::note(const Call& call, const c10::FunctionSchema& schema, std::size_t block) {
  // Dropouts give their input back where they drop nothing.
  const bool may_pass = schema.name().find("dropout") != std::string::npos;
  for (std::size_t i = 0; i < call.operands.size(); ++i) {
    const auto* alias = schema.arguments()[i].alias_info();
    const bool writes = alias != nullptr && alias->isWrite();
    if (alias == nullptr && !(may_pass && i == 0)) continue;
    std::vector<Value> given;
    if (call.operands[i].items.empty()) given.push_back(of(call.operands[i], block));
    for (const Operand& item : call.operands[i].items) given.push_back(of(item, block));
    for (const Value value : given) {
      if (writes) written_[root(value)] = true;
      for (const Result& result : call.results) {
        if (result.slot != k_no_slot) share(value, of(result.slot, block));
        for (const Slot slot : result.items) share(value, of(slot, block));
      }
    }
  }
}

}  // namespace onebatch
