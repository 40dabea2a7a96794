// Every ATen call of a forward, before autograd and before composite operators are taken apart: see Note [A model is a
// tape].
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <functional>

namespace onebatch {

/// Makes the call itself, with op.callBoxed(stack).
using OnCall = std::function<void(const c10::OperatorHandle& op, torch::jit::Stack* stack)>;

/// Runs `forward`, whose calls on this thread go through `on_call`. Not to be nested.
void watch_calls(const OnCall& on_call, const std::function<void()>& forward);

/// The defined tensors among a call's arguments or results, those in lists too.
void for_each_tensor(at::ArrayRef<c10::IValue> values, const std::function<void(const at::Tensor&)>& visit);

}  // namespace onebatch
