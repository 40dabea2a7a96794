#include "trainer/graph/tape.hpp"

#include "trainer/models/keyed_randomness.hpp"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/stack.h>

namespace onebatch {
namespace {

// aten::batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled)
constexpr std::size_t k_running_mean = 3;
constexpr std::size_t k_running_var = 4;
constexpr std::size_t k_training = 5;
constexpr std::size_t k_momentum = 6;
constexpr std::size_t k_eps = 7;

c10::IValue list_of(const TapeArgument& argument, const std::function<at::Tensor(Value)>& get) {
  if (argument.kind == TapeArgument::Kind::tensors) {
    std::vector<at::Tensor> tensors;
    for (const Value value : argument.values) tensors.push_back(get(value));
    return tensors;
  }
  c10::List<std::optional<at::Tensor>> tensors;
  for (const Value value : argument.values)
    tensors.push_back(value == k_no_value ? std::optional<at::Tensor>() : get(value));
  return tensors;
}

// A call that ran outside of the forward's autocast, or within one of its own, does so again.
class AsRecorded {
 public:
  explicit AsRecorded(const TapeCall& call) {
    if (call.autocast) {
      enter(*call.autocast);
      return;
    }
    for (const auto device : {c10::DeviceType::CPU, c10::DeviceType::CUDA}) {
      if (at::autocast::is_autocast_enabled(device)) change(device, false, at::autocast::get_autocast_dtype(device));
    }
  }
  ~AsRecorded() {
    if (!changed_) return;
    at::autocast::set_autocast_enabled(changed_->device, enabled_);
    at::autocast::set_autocast_dtype(changed_->device, changed_->type);
    at::autocast::set_autocast_cache_enabled(cached_);
  }
  AsRecorded(const AsRecorded&) = delete;
  AsRecorded& operator=(const AsRecorded&) = delete;

 private:
  void enter(const Autocast& recorded) {
    const auto [device, type] = recorded;
    if (at::autocast::is_autocast_enabled(device) && at::autocast::get_autocast_dtype(device) == type) return;
    change(device, true, type);
    at::autocast::set_autocast_cache_enabled(false);  // nobody empties it before weights are others
  }

  void change(c10::DeviceType device, bool enabled, at::ScalarType type) {
    changed_ = {device, at::autocast::get_autocast_dtype(device)};
    enabled_ = at::autocast::is_autocast_enabled(device);
    at::autocast::set_autocast_enabled(device, enabled);
    at::autocast::set_autocast_dtype(device, type);
  }

  std::optional<Autocast> changed_;  // as it was
  bool enabled_ = false;
  bool cached_ = at::autocast::is_autocast_cache_enabled();
};

void keep(const c10::IValue& item, const std::vector<Value>& values, Environment& made) {
  if (values.empty()) return;
  if (item.isTensor()) {
    if (values.front() != k_no_value) made[values.front()] = item.toTensor();
    return;
  }
  const auto tensors = item.toTensorVector();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] != k_no_value) made[values[i]] = tensors.at(i);
  }
}

}  // namespace

std::optional<Autocast> autocast_on(c10::DeviceType device) {
  if (!at::autocast::is_autocast_enabled(device)) return std::nullopt;
  return Autocast{device, at::autocast::get_autocast_dtype(device)};
}

bool is_batch_norm(const TapeCall& call) {
  return call.op.operator_name().name == "aten::batch_norm" && call.arguments[k_training].constant.toBool();
}

bool keeps_statistics_alone(const TapeCall& call, std::vector<TapeValue>& values) {
  if (!is_batch_norm(call) || call.arguments[k_running_mean].kind != TapeArgument::Kind::tensor) return false;
  for_each_made(call, [&](Value value) { values[static_cast<std::size_t>(value)].requires_grad = false; });
  return true;
}

void note_gradients(const TapeCall& call, std::vector<TapeValue>& values) {
  const bool differentiable = call.with_gradients && !call.op.operator_name().name.starts_with("aten::detach");
  bool from_one = false;
  for_each_read(call, [&](Value value) { from_one |= values[static_cast<std::size_t>(value)].requires_grad; });
  for_each_made(call, [&](Value value) {
    TapeValue& made = values[static_cast<std::size_t>(value)];
    made.requires_grad = differentiable && from_one && made.floating;
  });
}

double momentum_of(const TapeCall& call) {
  return call.arguments[k_momentum].constant.toDouble();
}

double momentum_after(const TapeCall& call, const at::Tensor& counter) {
  return 1.0 / (counter.item<double>() + static_cast<double>(call.counted_before + 1));
}

double eps_of(const TapeCall& call) {
  return call.arguments[k_eps].constant.toDouble();
}

void play(const TapeCall& call, Playing playing, const std::function<at::Tensor(Value)>& get,
          const std::function<at::Tensor(Value)>& get_to_write, Environment& made) {
  const at::AutoGradMode mode(call.with_gradients && at::GradMode::is_enabled());
  const AsRecorded autocast(call);
  set_random_place(call.random);
  torch::jit::Stack stack;
  std::vector<at::Tensor> written;
  for (const TapeArgument& argument : call.arguments) {
    if (argument.kind == TapeArgument::Kind::constant) {
      stack.push_back(argument.constant);
    } else if (argument.kind != TapeArgument::Kind::tensor) {
      stack.push_back(list_of(argument, get));
    } else if (argument.written) {
      written.push_back(get_to_write(argument.values.front()));
      stack.push_back(written.back());
    } else {
      stack.push_back(get(argument.values.front()));
    }
  }
  if (playing == Playing::again && is_batch_norm(call)) stack[k_running_mean] = stack[k_running_var] = c10::IValue();
  if (playing == Playing::first && call.momentum_buffer != k_no_value)
    stack[k_momentum] = momentum_after(call, get(call.momentum_buffer));
  call.op.callBoxed(&stack);
  for (std::size_t i = 0; i < written.size(); ++i) made[call.writes[i]] = written[i];
  for (std::size_t i = 0; i < call.results.size(); ++i) keep(stack[i], call.results[i], made);
}

}  // namespace onebatch
