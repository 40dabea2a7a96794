#include "trainer/graph/tape.hpp"
#include "trainer/graph/watched_calls.hpp"
#include "trainer/models/keyed_randomness.hpp"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <set>

namespace onebatch {
namespace {

using c10::IValue;

bool is_optional_tensors(const IValue& value) {
  if (!value.isList() || value.isTensorList()) return false;
  const auto type = value.toListRef().empty() ? nullptr : value.toList().elementType();
  return type != nullptr && type->isSubtypeOf(*c10::OptionalType::ofTensor());
}

class Recorder {
 public:
  explicit Recorder(const CaptureRequest& request)
      : literals_(request.literals == Literals::tensors), keeps_graph_(request.graph == AutogradGraph::recorded) {
    for (const auto& [name, tensor] : request.known) {
      const Value value = fresh(tensor);
      tape_.live.emplace(value, tensor);
      outlives_.emplace(value, value);
      names_.emplace(value, name);
    }
    device_ = request.data.front().device().type();
    for (const at::Tensor& tensor : request.data) tape_.data.push_back(fresh(tensor));
    from_data_ = {tape_.data.begin(), tape_.data.end()};
  }

  Tape finish(const at::Tensor& loss) {
    tape_.loss = of(loss, "the loss");
    leave_out_what_the_loss_does_not_need();
    return std::move(tape_);
  }

  /// Why a call was refused: TorchScript makes another exception of the one that says so.
  [[nodiscard]] const std::exception_ptr& refusal() const { return refusal_; }

  void record(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    const auto& schema = op.schema();
    TapeCall call{op, {}, {}, {}, at::GradMode::is_enabled(), at::autocast::is_autocast_enabled(device_), random_layers_so_far()};
    refuse_what_has_no_replay(op);
    std::vector<at::Tensor> written;
    const auto given = torch::jit::last(*stack, schema.arguments().size());
    for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
      const auto* alias = schema.arguments()[i].alias_info();
      const bool writes = alias != nullptr && alias->isWrite();
      call.arguments.push_back(argument(op, given[i], writes));
      if (!writes) continue;
      if (!given[i].isTensor()) refuse(op, "writes to a list of tensors");
      written.push_back(given[i].toTensor());
    }
    run(op, stack);
    for (const at::Tensor& tensor : written) {
      call.writes.push_back(fresh(tensor));
      tape_.values[static_cast<std::size_t>(call.writes.back())].made_by = place(op);
    }
    const auto returned = torch::jit::last(*stack, schema.returns().size());
    for (const IValue& item : returned) call.results.push_back(result(op, item, written));
    if (reads_number_ && returned.size() == 1 && returned[0].isScalar()) {
      buffer_number_ = returned[0].toScalar().toDouble();
      read_buffer_ = root_of(call.arguments.front().values.front());
    }
    if (is_batch_norm(call) && momentum_of(call) == 1.0 / buffer_number_) {
      call.momentum_buffer = read_buffer_;
      call.counted_before = std::ranges::count(tape_.calls, read_buffer_, &TapeCall::momentum_buffer);
    }
    note_origin(call);
    if (!keeps_graph_) note_gradients(call);
    tape_.calls.push_back(std::move(call));
  }

 private:
  [[noreturn]] void refuse(const c10::OperatorHandle& op, const std::string& why) {
    refuse_with(
        CannotCapture("the model cannot be taken apart for exact or synchronised BatchNorm or recomputation: " + place(op) + ", " + why));
  }

  template <typename Error>
  [[noreturn]] void refuse_with(const Error& error) {
    refusal_ = std::make_exception_ptr(error);
    throw error;
  }

  void run(const c10::OperatorHandle& op, torch::jit::Stack* stack) const {
    if (keeps_graph_) return op.callBoxed(stack);
    const c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
    op.callBoxed(stack);
  }

  // What autograd would say of the results.
  void note_gradients(const TapeCall& call) {
    bool differentiable = call.with_gradients && !call.op.operator_name().name.starts_with("aten::detach");
    bool from_one = false;
    for_each_read(call, [&](Value value) { from_one |= tape_.values[static_cast<std::size_t>(value)].requires_grad; });
    for_each_made(call, [&](Value value) {
      TapeValue& made = tape_.values[static_cast<std::size_t>(value)];
      made.requires_grad = differentiable && from_one && made.floating;
    });
  }

  std::string place(const c10::OperatorHandle& op) const {
    return op.operator_name().name + (last_name_.empty() ? " at the model's beginning" : ", after " + last_name_);
  }

  void refuse_what_has_no_replay(const c10::OperatorHandle& op) {
    static const std::set<std::string> numbers = {"aten::item", "aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal"};
    static const std::set<std::string> shapes = {"aten::nonzero",  "aten::masked_select", "aten::_unique",
                                                 "aten::_unique2", "aten::unique_dim",    "aten::unique_consecutive"};
    const std::string& name = op.operator_name().name;
    reads_number_ = numbers.contains(name);
    if (shapes.contains(name)) refuse(op, "makes a tensor whose shape depends on the data");
    if (op.hasTag(at::Tag::nondeterministic_seeded) && !is_keyed_random(name))
      refuse_with(DrawsOtherwise(
          place(op) +
          ", draws random numbers that are not keyed by sample: they are others under another plan, and when they are computed again"));
  }

  TapeArgument argument(const c10::OperatorHandle& op, const IValue& value, bool written) {
    TapeArgument argument;
    argument.written = written;
    const auto add = [&](const at::Tensor& tensor) { argument.values.push_back(read(op, tensor, written)); };
    if (value.isTensor() && value.toTensor().defined()) {
      argument.kind = TapeArgument::Kind::tensor;
      add(value.toTensor());
    } else if (value.isTensorList()) {
      argument.kind = TapeArgument::Kind::tensors;
      for (const at::Tensor& tensor : value.toTensorVector()) add(tensor);
    } else if (is_optional_tensors(value)) {
      argument.kind = TapeArgument::Kind::optional_tensors;
      for (const IValue& item : value.toListRef()) {
        if (item.isNone() || !item.toTensor().defined())
          argument.values.push_back(k_no_value);
        else
          add(item.toTensor());
      }
    } else {
      argument.constant = value;
    }
    return argument;
  }

  Value read(const c10::OperatorHandle& op, const at::Tensor& tensor, bool written) {
    const auto found = current_.find(tensor.unsafeGetTensorImpl());
    if (found == current_.end()) return foreign(op, tensor);
    const Value value = found->second;
    if (const auto name = names_.find(value); name != names_.end()) last_name_ = name->second.substr(0, name->second.rfind('.'));
    if (reads_number_ && from_data_.contains(value))
      refuse(op, "turns data into a number (.item() or a condition on a tensor's values), which the model then uses outside of tensors");
    if (!written && unfilled_.contains(value)) refuse(op, "reads a tensor that was filled by other means than tensor operations");
    return value;
  }

  Value foreign(const c10::OperatorHandle& op, const at::Tensor& tensor) {
    const bool constant = !tensor.requires_grad() && (literals_ || tensor.dim() == 0);
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number() || constant) {
      const Value value = fresh(tensor);
      tape_.live.emplace(value, tensor);
      return value;
    }
    if (tensor.grad_fn()) refuse(op, "takes the result of a custom autograd function (" + tensor.grad_fn()->name() + ")");
    refuse(op, "takes a tensor that is no input, parameter, buffer or result of the model: register it as a buffer");
  }

  Value root_of(Value value) const {
    const auto found = outlives_.find(value);
    return found == outlives_.end() ? k_no_value : found->second;
  }

  std::vector<Value> result(const c10::OperatorHandle& op, const IValue& item, const std::vector<at::Tensor>& written) {
    std::vector<Value> values;
    const auto add = [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return values.push_back(k_no_value);
      const bool same = std::any_of(written.begin(), written.end(), [&](const at::Tensor& other) { return other.is_same(tensor); });
      values.push_back(same ? current_.at(tensor.unsafeGetTensorImpl()) : fresh(tensor));
      auto& made = tape_.values[static_cast<std::size_t>(values.back())];
      if (made.made_by.empty()) made.made_by = place(op);
    };
    if (item.isTensor()) add(item.toTensor());
    if (item.isTensorList())
      for (const at::Tensor& tensor : item.toTensorVector()) add(tensor);
    if (op.operator_name().name.starts_with("aten::empty") || op.operator_name().name.starts_with("aten::new_empty"))
      unfilled_.insert(values.begin(), values.end());
    return values;
  }

  void note_origin(const TapeCall& call) {
    std::size_t write = 0;
    for (const TapeArgument& argument : call.arguments) {
      if (!argument.written) continue;
      const Value root = root_of(argument.values.front());
      if (root != k_no_value) outlives_.emplace(call.writes[write], root);
      ++write;
    }
    bool from_data = false;
    for_each_read(call, [&](Value value) { from_data |= from_data_.contains(value); });
    if (!from_data) return;
    from_data_.insert(call.writes.begin(), call.writes.end());
    for (const auto& values : call.results) from_data_.insert(values.begin(), values.end());
  }

  // Walking back from the loss: what nobody reads goes, but for what counts batches in a buffer.
  void leave_out_what_the_loss_does_not_need() {
    std::set<Value> needed;
    std::set<const void*> needed_memory;  // a write through a view is needed where any tensor on that memory is
    const auto need = [&](Value value) {
      needed.insert(value);
      needed_memory.insert(memory_of(value));
    };
    need(tape_.loss);
    std::vector<TapeCall> kept;
    for (auto call = tape_.calls.rbegin(); call != tape_.calls.rend(); ++call) {
      bool used =
          std::any_of(call->writes.begin(), call->writes.end(), [&](Value value) { return needed_memory.contains(memory_of(value)); });
      for (const auto& values : call->results)
        used |= std::any_of(values.begin(), values.end(), [&](Value value) { return needed.contains(value); });
      if (used) {
        refuse_changed_buffer(*call);
        for_each_read(*call, need);
        kept.push_back(std::move(*call));
      } else if (writes_a_buffer(*call)) {
        tape_.buffer_calls.push_back(std::move(*call));
      }
    }
    std::reverse(kept.begin(), kept.end());
    std::reverse(tape_.buffer_calls.begin(), tape_.buffer_calls.end());
    tape_.calls = std::move(kept);
  }

  // Its storage, or itself where it has none.
  const void* memory_of(Value value) const {
    const TapeValue& made = tape_.values[static_cast<std::size_t>(value)];
    return made.storage != nullptr ? made.storage : &made;
  }

  void refuse_changed_buffer(const TapeCall& call) {
    for (const TapeArgument& argument : call.arguments) {
      if (argument.written && outlives_.contains(argument.values.front()))
        refuse(call.op,
               "changes a parameter or buffer that the same forward then uses: it would be changed again when the step computes it again");
    }
  }

  bool writes_a_buffer(const TapeCall& call) {
    for (const TapeArgument& argument : call.arguments) {
      if (!argument.written || !outlives_.contains(argument.values.front())) continue;
      if (from_data_.contains(call.writes.front())) refuse(call.op, "keeps something of the data in a buffer: only BatchNorm may");
      return true;
    }
    return false;
  }

  Value of(const at::Tensor& tensor, const std::string& what) const {
    const auto found = current_.find(tensor.unsafeGetTensorImpl());
    if (found == current_.end())
      throw CannotCapture("the model cannot be taken apart: " + what + " is made by other means than tensor operations");
    return found->second;
  }

  // The tensor's memory may go, its address must not come back for another: that would take it for this one.
  Value fresh(const at::Tensor& tensor) {
    const auto value = static_cast<Value>(tape_.values.size());
    auto* impl = tensor.unsafeGetTensorImpl();
    TapeValue made;
    made.requires_grad = tensor.requires_grad();
    made.floating = tensor.is_floating_point() || tensor.is_complex();
    made.bytes = static_cast<std::int64_t>(tensor.nbytes());
    made.channels = tensor.dim() >= 2 ? tensor.size(1) : 0;
    if (tensor.has_storage()) {
      made.storage = tensor.storage().unsafeGetStorageImpl();
      storages_.emplace_back(tensor.storage().getWeakStorageImpl());
    }
    tape_.values.push_back(made);
    current_[impl] = value;
    addresses_.emplace_back(tensor.getIntrusivePtr());
    return value;
  }

  Tape tape_;
  std::unordered_map<const c10::TensorImpl*, Value> current_;
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> addresses_;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> storages_;
  std::unordered_map<Value, std::string> names_;
  std::unordered_map<Value, Value> outlives_;  // parameters, buffers and constants in any version: their first
  std::set<Value> unfilled_;
  std::set<Value> from_data_;  // follow from the inputs or targets
  c10::DeviceType device_ = c10::DeviceType::CPU;
  bool literals_;
  bool keeps_graph_;
  std::string last_name_;
  std::exception_ptr refusal_;
  bool reads_number_ = false;
  double buffer_number_ = 0.0;  // the last that the model has read from a buffer
  Value read_buffer_ = k_no_value;
};

}  // namespace

Tape capture(const CaptureRequest& request, const std::function<at::Tensor()>& loss) {
  const at::AutoGradMode with_gradients(true);
  Recorder target(request);
  at::Tensor made;
  try {
    watch_calls([&](const c10::OperatorHandle& op, torch::jit::Stack* stack) { target.record(op, stack); }, [&] { made = loss(); });
  } catch (const std::exception&) {
    if (target.refusal()) std::rethrow_exception(target.refusal());
    throw;
  }
  return target.finish(made);
}

}  // namespace onebatch
