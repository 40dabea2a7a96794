// An exported program as it runs: a list of calls whose arguments are prepared, on a frame of numbered values.
//
// Note [A program is compiled once]. The graph is text: names, operators, arguments. All of it is looked up when it is
// loaded, and what a step does is to push values, call the operator's dispatched kernel and take its results. Every
// value goes with its last reader, as a Python variable would with its scope. Calls go through the dispatcher, so that
// autograd, autocast, keyed dropout and tapes see what they see of any model.
#pragma once

#include "trainer/models/model.hpp"

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace onebatch {

/// A place in the frame of a block.
using Slot = std::int32_t;
constexpr Slot k_no_slot = -1;

/// What the run decides: literals of the program that stand for it follow it.
struct RunMode {
  c10::Device device{c10::kCPU};
  at::ScalarType program_type = at::kFloat;  // that the program was exported in
  at::ScalarType type = at::kFloat;
  Phase phase = Phase::training;
};

enum class Follows { nothing, device, type, training, probability, count };

struct Operand {
  enum class Form { constant, value, number_tensor, integers, numbers, booleans, tensors, optional_tensors };
  Form form = Form::constant;
  c10::IValue constant;
  Slot slot = k_no_slot;
  bool is_last = false;        // its slot is read no more
  std::vector<Operand> items;  // of a list
  Follows follows = Follows::nothing;
  c10::IValue written;  // what the program says, where `constant` follows the run
};

/// Where a result goes: a slot, or those of a list's items; none: nobody reads it.
struct Result {
  Slot slot = k_no_slot;
  std::vector<Slot> items;
  bool is_list = false;
};

struct Block;

struct Call {
  std::function<void(torch::jit::Stack&)> make;  // takes the operands from the stack, leaves the results
  std::vector<Operand> operands;
  std::vector<Result> results;
  std::string name;               // "torch.ops.aten.view.default (view_3)"
  std::shared_ptr<Block> region;  // of a call with a graph of its own
  bool is_pure = false;           // it changes nothing, draws nothing, and no call changes what it returns
};

struct Block {
  std::vector<Call> calls;
  std::size_t num_slots = 0;
  std::vector<Slot> inputs;
  std::vector<Operand> outputs;

  /// What it returns, in order. A LibTorch error names the call that it came from.
  [[nodiscard]] std::vector<c10::IValue> run(std::vector<c10::IValue> given) const;
};

/// Every call, those of regions too.
void for_each_call(Block& block, const std::function<void(Call&)>& visit);

/// To be called once a block is whole: notes each value's last reader, and forgets results that nobody reads.
void note_last_readers(Block& block);

/// Gives every literal that follows the run its value.
void follow(Block& block, const RunMode& mode);

}  // namespace onebatch
