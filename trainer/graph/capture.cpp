#include "trainer/graph/call_facts.hpp"
#include "trainer/graph/numbering.hpp"
#include "trainer/graph/watched_calls.hpp"
#include "trainer/models/keyed_randomness.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <set>

namespace onebatch {
namespace {

using c10::IValue;

class Recorder {
 public:
  explicit Recorder(const CaptureRequest& request)
      : scripted_(request.literals.has_value()), keeps_graph_(request.graph == AutogradGraph::recorded) {
    for (const auto& [name, tensor] : request.known) {
      const Value value = numbering_.fresh(tensor);
      tape_.live.emplace(value, tensor);
      outlives_.emplace(value, value);
      if (const void* storage = storage_of(tensor)) outliving_memory_.emplace(storage, value);
      names_.emplace(value, name);
    }
    if (request.literals) {
      for (const at::Tensor& tensor : *request.literals) literals_.insert(storage_of(tensor));
    }
    device_ = request.data.front().device().type();
    for (const at::Tensor& tensor : request.data) tape_.data.push_back(numbering_.fresh(tensor));
    from_data_ = {tape_.data.begin(), tape_.data.end()};
  }

  Tape finish(const at::Tensor& loss) {
    tape_.loss = numbering_.of(loss);
    if (tape_.loss == k_no_value)
      throw CannotCapture("the model cannot be taken apart: the loss is made by other means than tensor operations");
    refuse_numbers_from_changing_buffers();
    leave_out_what_the_loss_does_not_need();
    return std::move(tape_);
  }

  /// Why a call was refused: TorchScript makes another exception of the one that says so.
  [[nodiscard]] const std::exception_ptr& refusal() const { return refusal_; }

  void record(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    const auto& schema = op.schema();
    TapeCall call = call_to(op);
    std::vector<at::Tensor> written;
    const auto given = torch::jit::last(*stack, schema.arguments().size());
    refuse_what_has_no_replay(op, given);
    for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
      const auto* alias = schema.arguments()[i].alias_info();
      const bool writes = alias != nullptr && alias->isWrite();
      call.arguments.push_back(argument(op, given[i], writes));
      if (!writes) continue;
      if (!given[i].isTensor()) refuse(op, "writes to a list of tensors");
      written.push_back(given[i].toTensor());
    }
    refuse_what_leaves_the_tape(call, given);
    if (is_batch_norm(call)) call.of_samples = from_data_.contains(call.arguments[0].values.front());
    run(op, stack);
    for (const at::Tensor& tensor : written) {
      call.writes.push_back(numbering_.fresh(tensor));
      tape_.values[static_cast<std::size_t>(call.writes.back())].made_by = place(op);
    }
    const auto returned = torch::jit::last(*stack, schema.returns().size());
    for (const IValue& item : returned) call.results.push_back(result(op, item, written));
    if (reads_number(op) && returned.size() == 1 && returned[0].isScalar()) {
      buffer_number_ = returned[0].toScalar().toDouble();
      read_buffer_ = root_of(call.arguments.front().values.front());
    }
    if (is_batch_norm(call) && momentum_of(call) == 1.0 / std::exchange(buffer_number_, 0.0)) {
      call.momentum_buffer = read_buffer_;
      call.counted_before = std::ranges::count(tape_.calls, read_buffer_, &TapeCall::momentum_buffer);
    }
    note_origin(call);
    if (!keeps_graph_) note_gradients(call, tape_.values);
    tape_.calls.push_back(std::move(call));
  }

 private:
  TapeCall call_to(const c10::OperatorHandle& op) const {
    return {op, {}, {}, {}, at::GradMode::is_enabled(), autocast_on(device_), random_place()};
  }

  [[noreturn]] void refuse(const c10::OperatorHandle& op, const std::string& why) { refuse_at(place(op), why); }

  [[noreturn]] void refuse_at(const std::string& where, const std::string& why) {
    refuse_with(CannotCapture(
        "the model cannot be taken apart for exact or synchronised BatchNorm or recomputation: " + where + ", " + why));
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

  std::string place(const c10::OperatorHandle& op) const {
    return op.operator_name().name + (last_name_.empty() ? " at the model's beginning" : ", after " + last_name_);
  }

  void refuse_what_has_no_replay(const c10::OperatorHandle& op, Arguments given) {
    if (draws_unkeyed(op, given))
      refuse_with(DrawsOtherwise(place(op) + ", draws random numbers that are not keyed by sample: they are others "
                                             "under another plan, and when they are computed again"));
  }

  // Numbers and shapes made of tensors are constants on the tape: what they come from must be so too.
  void refuse_what_leaves_the_tape(const TapeCall& call, Arguments given) {
    const bool number = reads_number(call.op);
    if (!number && !makes_shape(call.op, given)) return;
    const Sources sources = sources_of(call, tape_, numbering_);
    std::set<Value> outliving;
    for (const Value value : sources.all) outliving.insert(root_of(value));
    outliving.erase(k_no_value);
    const auto trained = std::ranges::find_if(
        outliving, [&](Value value) { return tape_.values[static_cast<std::size_t>(value)].requires_grad; });
    const std::string parameter = trained == outliving.end() ? "" : name_of(*trained);
    const std::string what = number ? "into a number (.item() or a condition on a tensor's values), which the model "
                                      "then uses outside of tensors"
                                    : "into a tensor's shape";
    if (sources.data && !number) refuse(call.op, "makes a tensor whose shape depends on the data");
    if (sources.data) refuse(call.op, "turns data " + what);
    if (sources.random) refuse(call.op, "turns random numbers " + what);
    if (!parameter.empty())
      refuse(call.op, "turns the parameter " + parameter + " " + what + ", and the optimizer changes it");
    for (const Value value : outliving) numbers_of_.push_back({value, place(call.op)});
  }

  // BatchNorm's own counter may set its momentum: that is played as it is (TapeCall::momentum_buffer).
  void refuse_numbers_from_changing_buffers() {
    const std::set<Value> changing = changed_by(tape_, [this](Value value) { return root_of(value); });
    std::set<Value> counters;
    for (const TapeCall& call : tape_.calls) counters.insert(call.momentum_buffer);
    for (const auto& [value, where] : numbers_of_) {
      if (!changing.contains(value) || counters.contains(value)) continue;
      refuse_at(where, "turns the buffer " + name_of(value) + ", which the forward changes, into a number or a shape");
    }
  }

  [[nodiscard]] std::string name_of(Value value) const {
    const auto found = names_.find(value);
    return found == names_.end() ? "a constant" : found->second;
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
    const Value value = numbering_.of(tensor);
    if (value == k_no_value) return foreign(op, tensor);
    if (const auto name = names_.find(value); name != names_.end())
      last_name_ = name->second.substr(0, name->second.rfind('.'));
    if (!unfilled_.contains(value) || (written && overwrites(op))) return value;
    if (!scripted_ && !written) refuse(op, "reads a tensor that was filled by other means than tensor operations");
    if (!scripted_) return value;
    // TorchScript fills what torch.tensor(numbers) makes by itself. Numbers out of tensors are refused when read.
    const Value filled = numbering_.fresh(tensor);
    tape_.live.emplace(filled, tensor.detach().clone());
    outliving_memory_.emplace(storage_of(tensor), filled);
    return filled;
  }

  // A tensor that no call has made. TorchScript's .data shares the memory of one that was.
  Value foreign(const c10::OperatorHandle& op, const at::Tensor& tensor) {
    const bool number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
    if (number || (!tensor.requires_grad() && literals_.contains(storage_of(tensor)))) return constant(tensor);
    const Value same = numbering_.sharing_memory_with(tensor);
    if (same != k_no_value && !tensor.requires_grad()) return detached(same, tensor);
    if (tensor.grad_fn())
      refuse(op, "takes the result of a custom autograd function (" + tensor.grad_fn()->name() + ")");
    if (same == k_no_value && !tensor.requires_grad() && tensor.dim() == 0 && !numbering_.knows_memory_of(tensor))
      return constant(tensor);
    refuse(op, "takes a tensor that is no input, parameter, buffer or result of the model: register it as a buffer");
  }

  Value constant(const at::Tensor& tensor) {
    const Value value = numbering_.fresh(tensor);
    tape_.live.emplace(value, tensor);
    return value;
  }

  Value detached(Value from, const at::Tensor& tensor) {
    static const auto detach = c10::Dispatcher::singleton().findSchemaOrThrow("aten::detach", "");
    TapeCall call = call_to(detach);
    call.arguments.push_back({TapeArgument::Kind::tensor, {}, {from}});
    const Value value = numbering_.fresh(tensor);
    tape_.values[static_cast<std::size_t>(value)].made_by = place(detach);
    call.results.push_back({value});
    note_origin(call);
    tape_.calls.push_back(std::move(call));
    return value;
  }

  Value root_of(Value value) const {
    if (const auto found = outlives_.find(value); found != outlives_.end()) return found->second;
    const auto found = outliving_memory_.find(tape_.values[static_cast<std::size_t>(value)].storage);
    return found == outliving_memory_.end() ? k_no_value : found->second;
  }

  std::vector<Value> result(const c10::OperatorHandle& op, const IValue& item, const std::vector<at::Tensor>& written) {
    std::vector<Value> values;
    const auto add = [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return values.push_back(k_no_value);
      const bool same =
          std::any_of(written.begin(), written.end(), [&](const at::Tensor& other) { return other.is_same(tensor); });
      values.push_back(same ? numbering_.of(tensor) : numbering_.fresh(tensor));
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

  // Walking back from the loss: what nobody reads goes, but for what counts batches in a buffer and for a BatchNorm
  // that keeps its statistics, as in a head that the loss does not take.
  void leave_out_what_the_loss_does_not_need() {
    std::set<Value> needed;
    std::set<const void*> needed_memory;  // a write through a view is needed where any tensor on that memory is
    const auto need = [&](Value value) {
      needed.insert(value);
      needed_memory.insert(numbering_.memory_of(value));
    };
    need(tape_.loss);
    std::vector<TapeCall> kept;
    for (auto call = tape_.calls.rbegin(); call != tape_.calls.rend(); ++call) {
      bool used = std::any_of(call->writes.begin(), call->writes.end(),
                              [&](Value value) { return needed_memory.contains(numbering_.memory_of(value)); });
      for (const auto& values : call->results)
        used |= std::any_of(values.begin(), values.end(), [&](Value value) { return needed.contains(value); });
      if (used || keeps_statistics_alone(*call, tape_.values)) {
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

  void refuse_changed_buffer(const TapeCall& call) {
    for (const TapeArgument& argument : call.arguments) {
      if (argument.written && root_of(argument.values.front()) != k_no_value)
        refuse(call.op,
               "changes a parameter, buffer or constant that the same forward then uses: it would be changed again "
               "when the step computes it again");
    }
  }

  bool writes_a_buffer(const TapeCall& call) {
    for (const TapeArgument& argument : call.arguments) {
      if (!argument.written || root_of(argument.values.front()) == k_no_value) continue;
      if (from_data_.contains(call.writes.front()))
        refuse(call.op, "keeps something of the data in a buffer: only BatchNorm may");
      return true;
    }
    return false;
  }

  Tape tape_;
  Numbering numbering_{tape_.values};
  std::unordered_map<Value, std::string> names_;
  std::unordered_map<Value, Value> outlives_;  // parameters, buffers and constants in any version: their first
  std::set<Value> unfilled_;
  std::set<Value> from_data_;  // follow from the inputs or targets
  c10::DeviceType device_ = c10::DeviceType::CPU;
  std::unordered_map<const void*, Value> outliving_memory_;  // their storages: a view of one is it, too
  std::set<const void*> literals_;                           // storages
  std::vector<std::pair<Value, std::string>> numbers_of_;    // what outlives the forward, and where it became a number
  bool scripted_;
  bool keeps_graph_;
  std::string last_name_;
  std::exception_ptr refusal_;
  double buffer_number_ = 0.0;  // the last that the model has read from a buffer, until a BatchNorm comes
  Value read_buffer_ = k_no_value;
};

}  // namespace

Tape capture(const CaptureRequest& request, const std::function<at::Tensor()>& loss) {
  const at::AutoGradMode with_gradients(true);
  Recorder target(request);
  at::Tensor made;
  try {
    watch_calls([&](const c10::OperatorHandle& op, torch::jit::Stack* stack) { target.record(op, stack); },
                [&] { made = loss(); });
  } catch (const std::exception&) {
    if (target.refusal()) std::rethrow_exception(target.refusal());
    throw;
  }
  return target.finish(made);
}

}  // namespace onebatch
