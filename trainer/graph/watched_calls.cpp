#include "trainer/graph/watched_calls.hpp"

#include <ATen/Context.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

namespace onebatch {
namespace {

constexpr auto k_key = c10::DispatchKey::TESTING_ONLY_GenericMode;

// Of this thread's Watching: LibTorch calls pass_on(), a plain function, which has nothing else to find it by.
thread_local const OnCall* listener = nullptr;

void pass_on(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard below(k_key);
  if (listener == nullptr)
    op.callBoxed(stack);
  else
    (*listener)(op, stack);
}

// In deterministic mode LibTorch fills what torch.tensor(number) makes with NaN by an operator, and then with the
// number by none: a call that is no model's.
class NothingFilled {
 public:
  NothingFilled() : was_(at::globalContext().deterministicFillUninitializedMemory()) {
    at::globalContext().setDeterministicFillUninitializedMemory(false);
  }
  ~NothingFilled() { at::globalContext().setDeterministicFillUninitializedMemory(was_); }
  NothingFilled(const NothingFilled&) = delete;
  NothingFilled& operator=(const NothingFilled&) = delete;

 private:
  bool was_;
};

class Watching {
 public:
  explicit Watching(const OnCall& on_call)
      : library_(torch::Library::IMPL, "_", k_key, __FILE__, __LINE__), include_(k_key) {
    library_.fallback(torch::CppFunction::makeFromBoxedFunction<&pass_on>());
    listener = &on_call;
  }
  ~Watching() { listener = nullptr; }
  Watching(const Watching&) = delete;
  Watching& operator=(const Watching&) = delete;

 private:
  torch::Library library_;
  c10::impl::IncludeDispatchKeyGuard include_;
};

}  // namespace

void watch_calls(const OnCall& on_call, const std::function<void()>& forward) {
  const NothingFilled nothing_filled;
  const Watching watching(on_call);
  forward();
}

void for_each_tensor(at::ArrayRef<c10::IValue> values, const std::function<void(const at::Tensor&)>& visit) {
  for (const c10::IValue& value : values) {
    if (value.isTensor() && value.toTensor().defined()) visit(value.toTensor());
    if (value.isList()) for_each_tensor(value.toListRef(), visit);
  }
}

}  // namespace onebatch
