#include "trainer/models/exported_calls.hpp"

#include "trainer/base/error.hpp"

#include <ATen/ScalarOps.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

namespace onebatch {
namespace {

using c10::IValue;
using Form = Operand::Form;
using Frame = std::vector<IValue>;

IValue value_of(const Operand& operand, Frame& frame);

template <typename T, typename Of>
IValue list_of(const Operand& operand, Frame& frame, const Of& of) {
  c10::List<T> list;
  list.reserve(operand.items.size());
  for (const Operand& item : operand.items) list.push_back(of(value_of(item, frame)));
  return list;
}

IValue number_tensor(const IValue& number) {
  return at::native::wrapped_scalar_tensor(number.toScalar());
}

IValue value_of(const Operand& operand, Frame& frame) {
  switch (operand.form) {
    case Form::constant: return operand.constant;
    case Form::value: {
      IValue& value = frame[static_cast<std::size_t>(operand.slot)];
      return operand.is_last ? std::move(value) : value;
    }
    case Form::number_tensor: return number_tensor(frame[static_cast<std::size_t>(operand.slot)]);
    case Form::integers: return list_of<std::int64_t>(operand, frame, [](const IValue& one) { return one.toInt(); });
    case Form::numbers:
      return list_of<double>(operand, frame, [](const IValue& one) { return one.toScalar().toDouble(); });
    case Form::booleans: return list_of<bool>(operand, frame, [](const IValue& one) { return one.toBool(); });
    case Form::tensors: return list_of<at::Tensor>(operand, frame, [](const IValue& one) { return one.toTensor(); });
    case Form::optional_tensors:
      return list_of<std::optional<at::Tensor>>(operand, frame, [](const IValue& one) {
        return one.isNone() ? std::nullopt : std::optional<at::Tensor>(one.toTensor());
      });
  }
  return {};
}

void keep(Frame& frame, Slot slot, IValue value) {
  if (slot != k_no_slot) frame[static_cast<std::size_t>(slot)] = std::move(value);
}

void take_results(const Call& call, torch::jit::Stack& stack, Frame& frame) {
  if (stack.size() != call.results.size())
    throw UserError(
        fmt::format("{} returns {} values, and the program expects {}", call.name, stack.size(), call.results.size()));
  for (std::size_t i = 0; i < stack.size(); ++i) {
    const Result& result = call.results[i];
    if (!result.is_list) {
      keep(frame, result.slot, std::move(stack[i]));
      continue;
    }
    const std::vector<at::Tensor> tensors = stack[i].toTensorVector();
    if (tensors.size() != result.items.size())
      throw UserError(
          fmt::format("{} returns {} tensors, and the program was exported with {}: what it splits must "
                      "have the size that it had there",
                      call.name, tensors.size(), result.items.size()));
    for (std::size_t k = 0; k < tensors.size(); ++k) keep(frame, result.items[k], tensors[k]);
  }
  stack.clear();
}

// Of a call in reverse: the last operand that reads a slot is the first that is met.
void note_reads(Operand& operand, std::vector<bool>& read) {
  for (auto item = operand.items.rbegin(); item != operand.items.rend(); ++item) note_reads(*item, read);
  if (operand.slot == k_no_slot) return;
  const auto slot = static_cast<std::size_t>(operand.slot);
  operand.is_last = !read[slot];
  read[slot] = true;
}

IValue literal_in(const Operand& operand, const RunMode& mode) {
  const bool trains = mode.phase == Phase::training;
  switch (operand.follows) {
    case Follows::nothing: break;
    case Follows::device: return mode.device;
    case Follows::type: {
      const auto written = static_cast<at::ScalarType>(operand.written.toInt());
      if (written == mode.program_type) return static_cast<std::int64_t>(mode.type);
      const bool is_complex = c10::isComplexType(written) && written == c10::toComplexType(mode.program_type);
      return static_cast<std::int64_t>(is_complex && mode.type == at::kDouble ? at::kComplexDouble : written);
    }
    case Follows::training: return trains;
    case Follows::probability: return trains ? operand.written : IValue(0.0);
    case Follows::count: return number_tensor(trains ? operand.written : IValue(std::int64_t{0}));
  }
  return operand.constant;
}

}  // namespace

std::vector<IValue> Block::run(std::vector<IValue> given) const {
  Frame frame(num_slots);
  for (std::size_t i = 0; i < inputs.size(); ++i) keep(frame, inputs[i], std::move(given[i]));
  torch::jit::Stack stack;
  const Call* current = nullptr;
  try {
    for (const Call& call : calls) {
      current = &call;
      for (const Operand& operand : call.operands) stack.push_back(value_of(operand, frame));
      call.make(stack);
      take_results(call, stack, frame);
    }
  } catch (c10::Error& error) {
    error.add_context("in " + current->name + " of the exported program");
    throw;
  }
  std::vector<IValue> returned;
  for (const Operand& output : outputs) returned.push_back(value_of(output, frame));
  return returned;
}

void for_each_call(Block& block, const std::function<void(Call&)>& visit) {
  for (Call& call : block.calls) {
    visit(call);
    if (call.region) for_each_call(*call.region, visit);
  }
}

void note_last_readers(Block& block) {
  std::vector<bool> read(block.num_slots, false);
  for (auto output = block.outputs.rbegin(); output != block.outputs.rend(); ++output) note_reads(*output, read);
  const auto forget = [&](Slot& slot) {
    if (slot != k_no_slot && !read[static_cast<std::size_t>(slot)]) slot = k_no_slot;
  };
  for (auto call = block.calls.rbegin(); call != block.calls.rend(); ++call) {
    for (Result& result : call->results) {
      forget(result.slot);
      for (Slot& slot : result.items) forget(slot);
    }
    for (auto operand = call->operands.rbegin(); operand != call->operands.rend(); ++operand)
      note_reads(*operand, read);
  }
  for (Slot& slot : block.inputs) forget(slot);
}

void follow(Block& block, const RunMode& mode) {
  for_each_call(block, [&](Call& call) {
    for (Operand& operand : call.operands) {
      if (operand.follows != Follows::nothing) operand.constant = literal_in(operand, mode);
    }
  });
}

}  // namespace onebatch
