// Any torch::nn::Module with what the trainer asks of it beside its tensors: its forward, as a function of a list of
// tensors. A header alone: a plugin needs nothing else of this library.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace onebatch {

/// Made of a module, or of a holder of one (torch::nn::Sequential, TORCH_MODULE). Its forward takes one tensor or
/// several, or a std::vector of any number, and returns a tensor, a std::tuple or a std::vector of some.
struct CallableModule {
  std::shared_ptr<torch::nn::Module> module;  // null: there is none
  /// None where the module's forward does not take so many.
  std::function<std::optional<std::vector<at::Tensor>>(const std::vector<at::Tensor>&)> forward;

  CallableModule() = default;
  template <typename M>
  requires std::derived_from<M, torch::nn::Module> CallableModule(const std::shared_ptr<M>& its_module);
  template <typename M>
  CallableModule(const torch::nn::ModuleHolder<M>& holder)
      : CallableModule(holder.is_empty() ? std::shared_ptr<M>() : holder.ptr()) {}
};

/// How CallableModule finds out what a module's forward is like.
namespace callable {

using Tensors = std::vector<at::Tensor>;

constexpr std::size_t k_most_inputs = 8;

inline Tensors listed(at::Tensor one) {
  return {std::move(one)};
}
inline Tensors listed(Tensors some) {
  return some;
}
template <typename... T>
Tensors listed(const std::tuple<T...>& some) {
  return std::apply([](const auto&... each) { return Tensors{each...}; }, some);
}

template <typename M>
concept TakesList = requires(M& module, const Tensors& inputs) {
  listed(module.forward(inputs));
};

template <std::size_t>
using AnInput = const at::Tensor&;

template <typename M, std::size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
  return requires(M & module, const Tensors& inputs) {
    listed(module.forward(AnInput<I>(inputs[I])...));
  };
}

template <std::size_t N, typename M>
constexpr bool k_takes = takes<M>(std::make_index_sequence<N>());

template <typename M, std::size_t... I>
Tensors call(M& module, const Tensors& inputs, std::index_sequence<I...>) {
  return listed(module.forward(AnInput<I>(inputs[I])...));
}

/// By as many arguments as there are inputs, where it takes them.
template <typename M, std::size_t N = 1>
std::optional<Tensors> call_with_each(M& module, const Tensors& inputs) {
  if constexpr (k_takes<N, M>) {
    if (inputs.size() == N) return call(module, inputs, std::make_index_sequence<N>());
  }
  if constexpr (N < k_most_inputs) return call_with_each<M, N + 1>(module, inputs);
  return std::nullopt;
}

template <typename M, std::size_t N = 1>
constexpr bool takes_any() {
  if constexpr (k_takes<N, M>) return true;
  if constexpr (N < k_most_inputs) return takes_any<M, N + 1>();
  return false;
}

}  // namespace callable

template <typename M>
requires std::derived_from<M, torch::nn::Module> CallableModule::CallableModule(const std::shared_ptr<M>& its_module)
    : module(its_module) {
  constexpr bool k_each = callable::takes_any<M>();
  static_assert(k_each || callable::TakesList<M>,
                "the module needs a public forward that takes tensors and returns a tensor (or a std::tuple or "
                "std::vector of tensors)");
  forward = [of = its_module.get()](const callable::Tensors& inputs) -> std::optional<callable::Tensors> {
    if constexpr (k_each)
      return callable::call_with_each(*of, inputs);
    else
      return callable::listed(of->forward(inputs));
  };
}

}  // namespace onebatch
