#include "trainer/graph/examiner.hpp"

#include "trainer/graph/watched_calls.hpp"

#include <algorithm>

namespace onebatch {
namespace {

const void* memory_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? static_cast<const void*>(tensor.storage().unsafeGetStorageImpl())
                              : tensor.unsafeGetTensorImpl();
}

}  // namespace

std::string parent_of(const std::string& name) {
  const auto dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

Examiner::Examiner(const Model& model, const std::vector<at::Tensor>& inputs) {
  for (const auto& [name, tensor] : model.parameters()) parameters_.emplace(memory_of(tensor), name);
  for (const auto& [name, tensor] : model.buffers()) buffers_.emplace(memory_of(tensor), name);
  for (const at::Tensor& tensor : inputs) from_data_.insert(keep(tensor));
}

void Examiner::record(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto last = torch::jit::last(*stack, op.schema().arguments().size());
  const std::vector<c10::IValue> given(last.begin(), last.end());
  bool from_data = false;
  for_each_tensor(given, [&](const at::Tensor& tensor) { from_data |= is_from_data(tensor); });
  note_writes(op, given, from_data ? Source::data : Source::model);
  for_each_tensor(given, [this](const at::Tensor& tensor) { note_layer(tensor); });
  note_call(op, given);
  if (from_data && reads_number(op)) add(Trait::reads_data, op);
  op.callBoxed(stack);
  for_each_tensor(torch::jit::last(*stack, op.schema().returns().size()), [&](const at::Tensor& tensor) {
    made_by_[keep(tensor)] = {op.operator_name().name, layer_};
    if (from_data && name_of(tensor).empty()) from_data_.insert(memory_of(tensor));
  });
}

Examiner::Place Examiner::maker_of(const at::Tensor& tensor) const {
  const auto found = made_by_.find(memory_of(tensor));
  return found == made_by_.end() ? Place() : found->second;
}

bool Examiner::is_from_data(const at::Tensor& tensor) const {
  return from_data_.contains(memory_of(tensor));
}

const void* Examiner::keep(const at::Tensor& tensor) {
  if (tensor.has_storage()) storages_.emplace_back(tensor.storage().getWeakStorageImpl());
  return memory_of(tensor);
}

// Empty where it is none of the model's own.
std::string Examiner::name_of(const at::Tensor& tensor) const {
  for (const auto* names : {&parameters_, &buffers_}) {
    if (const auto found = names->find(memory_of(tensor)); found != names->end()) return found->second;
  }
  return {};
}

void Examiner::note_layer(const at::Tensor& tensor) {
  const std::string name = name_of(tensor);
  if (!parent_of(name).empty()) layer_ = parent_of(name);
  if (parent_of(name).empty() && parameters_.contains(memory_of(tensor))) layer_ = name;
}

void Examiner::add(Trait trait, const c10::OperatorHandle& op, const std::string& tensor) {
  const Finding finding{trait, op.operator_name().name, layer_, tensor};
  if (std::ranges::find(findings_, finding) == findings_.end()) findings_.push_back(finding);
}

void Examiner::note_call(const c10::OperatorHandle& op, Arguments given) {
  if (draws_unkeyed(op, given)) add(Trait::draws_unkeyed, op);
  if (has_sparse_gradient(op, given)) add(Trait::sparse_gradient, op);
  if (!takes_batch_statistics(op, given) || !is_from_data(given.front().toTensor())) return;  // weights' own are none
  const std::string layer = layer_.empty() ? op.operator_name().name : layer_;
  if (std::ranges::find(batch_norm_layers_, layer) == batch_norm_layers_.end()) batch_norm_layers_.push_back(layer);
  for (const char* name : {"running_mean", "running_var"}) {
    const c10::IValue* value = argument_named(op, given, name);
    if (value != nullptr)
      for_each_tensor(*value, [&](const at::Tensor& tensor) { statistics_.insert(name_of(tensor)); });
  }
}

void Examiner::note_writes(const c10::OperatorHandle& op, Arguments given, Source source) {
  for (std::size_t i = 0; i < given.size(); ++i) {
    const auto* alias = op.schema().arguments()[i].alias_info();
    if (alias == nullptr || !alias->isWrite()) continue;
    for_each_tensor(given[i], [&](const at::Tensor& tensor) { note_write(op, tensor, source); });
  }
  // Its schema does not say that it updates them.
  const c10::IValue* of_input = argument_named(op, given, "use_input_stats");
  if (op.operator_name().name != "aten::instance_norm" || of_input == nullptr || !of_input->toBool()) return;
  for (const char* name : {"running_mean", "running_var"})
    for_each_tensor(*argument_named(op, given, name),
                    [&](const at::Tensor& tensor) { note_write(op, tensor, Source::data); });
}

void Examiner::note_write(const c10::OperatorHandle& op, const at::Tensor& tensor, Source source) {
  const void* memory = memory_of(tensor);
  if (source == Source::data) from_data_.insert(memory);
  if (const auto found = parameters_.find(memory); found != parameters_.end())
    add(Trait::changes_parameter, op, found->second);
  const auto found = buffers_.find(memory);
  if (found == buffers_.end()) return;
  Write& write = writes_[found->second];
  write = {{op.operator_name().name, layer_}, write.from_data || source == Source::data};
}

}  // namespace onebatch
