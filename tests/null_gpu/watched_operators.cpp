// Preloaded beside the stand-in: tells it which memory of its devices every operator of LibTorch reads and writes, on
// which stream.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <c10/cuda/CUDAStream.h>
#include <dlfcn.h>

#include <array>
#include <string_view>

namespace {

using Touch = void (*)(cudaStream_t, const void*, std::size_t, bool, const char*);

Touch touch() {
  static const auto found = reinterpret_cast<Touch>(dlsym(RTLD_DEFAULT, "null_gpu_touch"));
  return found;
}

// They read no more of their arguments than shapes and strides.
bool makes_alike(std::string_view name) {
  constexpr std::array<std::string_view, 7> words = {"_like",  "::empty", "::new_", "::zeros",
                                                     "::ones", "::full",  "_as"};
  for (const std::string_view word : words) {
    if (name.find(word) != std::string_view::npos) return true;
  }
  return false;
}

// Buffers of a batch normalisation that its schema does not say it writes.
bool is_written(const c10::Argument& argument, bool trains) {
  const c10::AliasInfo* const alias = argument.alias_info();
  return (alias != nullptr && alias->isWrite()) || (trains && argument.name().starts_with("running_"));
}

void touch_tensor(const at::Tensor& tensor, bool writes, const char* by) {
  if (!tensor.defined() || !tensor.is_cuda() || !tensor.has_storage() || tensor.numel() == 0 ||
      tensor.const_data_ptr() == nullptr)
    return;
  std::int64_t elements = 1;  // from the first to the last
  for (std::int64_t i = 0; i < tensor.dim(); ++i) elements += (tensor.size(i) - 1) * tensor.stride(i);
  const auto stream = c10::cuda::getCurrentCUDAStream(tensor.device().index());
  touch()(stream, tensor.const_data_ptr(), static_cast<std::size_t>(elements * tensor.element_size()), writes, by);
}

void touch_value(const c10::IValue& value, bool writes, const char* by) {
  if (value.isTensor()) return touch_tensor(value.toTensor(), writes, by);
  if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) touch_tensor(tensor, writes, by);
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) touch_value(element, writes, by);
  }
}

// What an operator does with its arguments; null: nothing that is known, or nothing.
const c10::FunctionSchema* schema_of(const at::RecordFunction& function) {
  const auto name = function.operator_name();
  if (!name || name->name == "aten::record_stream") return nullptr;
  const auto found = c10::Dispatcher::singleton().findOp(*name);
  return found && found->hasSchema() ? &found->schema() : nullptr;
}

std::unique_ptr<at::ObserverContext> before(const at::RecordFunction& function) {
  const c10::FunctionSchema* const schema = schema_of(function);
  if (schema == nullptr || touch() == nullptr) return nullptr;
  const auto& arguments = schema->arguments();
  const auto& inputs = function.inputs();
  bool trains = false;
  for (std::size_t i = 0; i < arguments.size() && i < inputs.size(); ++i)
    trains = trains || (arguments[i].name().starts_with("train") && inputs[i].isBool() && inputs[i].toBool());
  const bool reads = !makes_alike(schema->name());
  for (std::size_t i = 0; i < arguments.size() && i < inputs.size(); ++i) {
    const bool writes = is_written(arguments[i], trains);
    const bool is_viewed = arguments[i].alias_info() != nullptr && !writes;
    if (writes || (reads && !is_viewed)) touch_value(inputs[i], writes, function.name());
  }
  return nullptr;
}

void after(const at::RecordFunction& function, at::ObserverContext*) {
  const c10::FunctionSchema* const schema = schema_of(function);
  if (schema == nullptr || touch() == nullptr) return;
  const auto& returns = schema->returns();
  const auto& outputs = function.outputs();
  const bool fills = std::string_view(schema->name()).find("::empty") == std::string_view::npos;
  for (std::size_t i = 0; fills && i < returns.size() && i < outputs.size(); ++i) {
    if (returns[i].alias_info() == nullptr) touch_value(outputs[i], true, function.name());
  }
}

const auto k_watching = at::addGlobalCallback(
    at::RecordFunctionCallback(before, after).needsInputs(true).needsOutputs(true).scopes({at::RecordScope::FUNCTION}));

}  // namespace
