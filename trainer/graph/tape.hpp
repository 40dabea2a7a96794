// A model's forward and loss as a list of ATen calls, found by watching one run of them.
//
// Note [A model is a tape]. A boxed fallback on a dispatch key of its own sees every ATen call before autograd and
// before composite operators are taken apart: C++ modules, scripted and traced TorchScript alike. Arguments are
// numbered by the tensor's identity and version, so a call that writes in place makes a new value. Played again, the
// tape gives the model's own bits. Sizes that C++ code has read are baked in: a tape serves one micro-batch size.
#pragma once

#include "trainer/base/error.hpp"
#include "trainer/models/keyed_randomness.hpp"
#include "trainer/models/model.hpp"

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

namespace onebatch {

/// Numbers a tensor at one version.
using Value = std::int32_t;
constexpr Value k_no_value = -1;

struct TapeArgument {
  enum class Kind { constant, tensor, tensors, optional_tensors };
  Kind kind = Kind::constant;
  c10::IValue constant;
  std::vector<Value> values;
  bool written = false;
};

struct Autocast {
  c10::DeviceType device;
  at::ScalarType type;
};

/// None where it is off there.
std::optional<Autocast> autocast_on(c10::DeviceType device);

struct TapeCall {
  c10::OperatorHandle op;
  std::vector<TapeArgument> arguments;
  std::vector<std::vector<Value>> results;  // by returned item; a list's are its tensors
  std::vector<Value> writes;                // the new versions of the written arguments, in their order
  bool with_gradients = true;               // the mode it ran in
  std::optional<Autocast> autocast;         // where it was on
  RandomPlace random;                       // what it draws by, if it draws
  // Of aten::batch_norm with momentum None: the buffer that counts batches, 1 / which it is.
  Value momentum_buffer = k_no_value;
  bool of_samples = true;           // of aten::batch_norm: what it normalises follows from the data, and is no weight
  std::int64_t counted_before = 0;  // how many calls of this forward have counted in that buffer before
};

/// aten::batch_norm with the statistics of its batch.
[[nodiscard]] bool is_batch_norm(const TapeCall& call);
/// Of an aten::batch_norm.
[[nodiscard]] double momentum_of(const TapeCall& call);
/// Of one with momentum None, where its buffer has the count before this forward.
[[nodiscard]] double momentum_after(const TapeCall& call, const at::Tensor& counter);
[[nodiscard]] double eps_of(const TapeCall& call);

/// Every value that a call takes.
template <typename Visit>
void for_each_read(const TapeCall& call, const Visit& visit) {
  for (const TapeArgument& argument : call.arguments) {
    for (const Value value : argument.values) {
      if (value != k_no_value) visit(value);
    }
  }
}

/// Every value that a call makes.
template <typename Visit>
void for_each_made(const TapeCall& call, const Visit& visit) {
  for (const Value value : call.writes) visit(value);
  for (const auto& values : call.results) {
    for (const Value value : values) {
      if (value != k_no_value) visit(value);
    }
  }
}

struct TapeValue {
  bool requires_grad = false;  // or may: a tensor that turns out not to is no mistake
  bool floating = false;
  std::int64_t bytes = 0;
  std::int64_t channels = 0;      // the second dimension
  const void* storage = nullptr;  // equal where two values share memory
  std::string made_by;            // "aten::add, after layer1.0.conv1"
};

/// Notes in `values` what autograd would say of the call's results.
void note_gradients(const TapeCall& call, std::vector<TapeValue>& values);
/// Of a call whose results nobody reads: whether it is a BatchNorm that keeps running statistics, as in a head that the
/// loss does not take. It then has no backward.
[[nodiscard]] bool keeps_statistics_alone(const TapeCall& call, std::vector<TapeValue>& values);

struct Tape {
  std::vector<TapeCall> calls;
  std::vector<TapeCall> buffer_calls;  // of no use to the loss: they only change buffers, and run once per step
  std::vector<TapeValue> values;
  std::unordered_map<Value, at::Tensor> live;  // parameters, buffers and constants
  std::vector<Value> data;                     // a batch's tensors, in their order
  Value loss = k_no_value;
};

/// The model does something that a tape cannot hold; says which operator, where, and why.
class CannotCapture : public UserError {
 public:
  using UserError::UserError;
};

/// It draws random numbers that depend on the plan.
class DrawsOtherwise : public CannotCapture {
 public:
  using CannotCapture::CannotCapture;
};

/// With a graph of its own a capture takes a forward's whole memory, and sees custom autograd functions.
enum class AutogradGraph { recorded, left_out };

struct CaptureRequest {
  std::vector<NamedTensor> known;  // parameters, buffers, constants: everything that outlives a call
  // Constants of a script's code; none: C++, whose numbers alone are constants.
  std::optional<std::vector<at::Tensor>> literals;
  AutogradGraph graph = AutogradGraph::left_out;
  std::vector<at::Tensor> data;  // a batch's tensors
};

/// Runs `loss` once, in the mode of gradients, and records it. Whatever it changes in buffers is the caller's to undo.
/// Throws CannotCapture.
Tape capture(const CaptureRequest& request, const std::function<at::Tensor()>& loss);

/// Tensors by value.
using Environment = std::unordered_map<Value, at::Tensor>;

/// Calls an operator: its tensors come from `get`, those that it writes to from `get_to_write`; what it made is added
/// to `made`. A BatchNorm that is played a second time leaves its running statistics alone.
enum class Playing { first, again };
void play(const TapeCall& call, Playing playing, const std::function<at::Tensor(Value)>& get,
          const std::function<at::Tensor(Value)>& get_to_write, Environment& made);

}  // namespace onebatch
