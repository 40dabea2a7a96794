#include "trainer/optim/optimizer.hpp"

#include "trainer/base/error.hpp"
#include "trainer/models/layout.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fnmatch.h>

#include <algorithm>
#include <stdexcept>

namespace onebatch {
namespace {

bool uses_moments(OptimizerKind kind) {
  return kind != OptimizerKind::sgd;
}

std::size_t group_of(const std::string& name, const std::vector<ParameterGroup>& groups) {
  const auto found = std::ranges::find_if(
      groups, [&](const ParameterGroup& group) { return group.match == name || ::fnmatch(group.match.c_str(), name.c_str(), 0) == 0; });
  return static_cast<std::size_t>(found - groups.begin());
}

// The fused calls take the n-th element in memory of one for that of the other.
void check_layout(const std::vector<std::string>& names, const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& others) {
  for (std::size_t i = 0; i < others.size(); ++i) {
    if (parameters[i].is_non_overlapping_and_dense() && same_order(parameters[i], others[i])) continue;
    throw std::logic_error("the parameter " + names[i] + ", its gradient and the optimizer's state differ in the order of their elements");
  }
}

}  // namespace

Optimizer::Optimizer(const OptimizerConfiguration& configuration, const FlatGradients& gradients) : configuration_(configuration) {
  const bool moments = uses_moments(configuration.kind);
  const bool momentum = configuration.kind == OptimizerKind::sgd && configuration.momentum != 0.0;
  for (std::size_t i = 0; i < gradients.parameters().size(); ++i) {
    const auto& [name, tensor] = gradients.parameters()[i];
    const at::Tensor& gradient = gradients.views()[i];
    const bool is_copy = tensor.scalar_type() != gradient.scalar_type();
    names_.push_back(name);
    group_of_.push_back(group_of(name, configuration.groups));
    copies_.push_back(is_copy ? tensor : at::Tensor());
    all_.parameters.push_back(is_copy ? tensor.detach().to(gradient.scalar_type()) : tensor);
    all_.gradients.push_back(gradient);
    if (moments || momentum) all_.first.push_back(at::zeros_like(gradient));
    if (!moments) continue;
    all_.second.push_back(at::zeros_like(gradient));
    all_.steps.push_back(at::zeros({}, tensor.options().requires_grad(false).dtype(at::kFloat)));
  }
  for (const auto* others : {&all_.gradients, &all_.first, &all_.second}) check_layout(names_, all_.parameters, *others);
  for (std::size_t group = 0; group < configuration.groups.size(); ++group) {
    if (std::ranges::find(group_of_, group) != group_of_.end()) continue;
    throw UserError("optimizer.groups: no parameter is left for the match \"" + configuration.groups[group].match + "\": names are " +
                    names_.front() + (names_.size() > 1 ? ", ..., " + names_.back() : "") +
                    ", and each belongs to the first group that matches it");
  }
}

Optimizer::Tensors Optimizer::select(std::size_t group, const std::vector<double>& touched) const {
  const bool all = configuration_.groups.empty() && std::all_of(touched.begin(), touched.end(), [](double flag) { return flag > 0.0; });
  if (all) return all_;
  Tensors some;
  const auto pick = [&](const std::vector<at::Tensor>& from, std::vector<at::Tensor>& to, std::size_t i) {
    if (!from.empty()) to.push_back(from[i]);
  };
  for (std::size_t i = 0; i < touched.size(); ++i) {
    if (touched[i] == 0.0 || group_of_[i] != group) continue;
    pick(all_.parameters, some.parameters, i);
    pick(all_.gradients, some.gradients, i);
    pick(all_.first, some.first, i);
    pick(all_.second, some.second, i);
    pick(all_.steps, some.steps, i);
  }
  return some;
}

void Optimizer::step(double lr, const std::vector<double>& touched) {
  const at::NoGradGuard no_grad;
  const auto& c = configuration_;
  for (std::size_t group = 0; group < c.groups.size(); ++group) {
    const ParameterGroup& own = c.groups[group];
    const double rate = !own.lr ? lr : (c.lr > 0.0 ? lr * (*own.lr / c.lr) : 0.0);
    update(select(group, touched), rate, own.weight_decay.value_or(c.weight_decay));
  }
  update(select(c.groups.size(), touched), lr, c.weight_decay);
  copy_masters(touched);
}

void Optimizer::update(const Tensors& t, double lr, double weight_decay) const {
  if (t.parameters.empty()) return;
  const auto& c = configuration_;
  for (const at::Tensor& count : t.steps) count.add_(1.0);
  switch (c.kind) {
    case OptimizerKind::adamw:
      at::_fused_adamw_(t.parameters, t.gradients, t.first, t.second, {}, t.steps, lr, c.betas[0], c.betas[1], weight_decay, c.eps, false,
                        false);
      break;
    case OptimizerKind::adam:
      at::_fused_adam_(t.parameters, t.gradients, t.first, t.second, {}, t.steps, lr, c.betas[0], c.betas[1], weight_decay, c.eps, false,
                       false);
      break;
    case OptimizerKind::sgd:
      // With a buffer of zeros the first step is no special case: momentum * 0 + gradient.
      at::_fused_sgd_(t.parameters, t.gradients, t.first, weight_decay, c.momentum, lr, /*dampening=*/0.0, c.nesterov, false,
                      /*is_first_step=*/false);
      break;
  }
}

void Optimizer::copy_masters(const std::vector<double>& touched) {
  for (std::size_t i = 0; i < copies_.size(); ++i) {
    if (copies_[i].defined() && touched[i] != 0.0) copies_[i].copy_(all_.parameters[i]);
  }
}

std::vector<NamedTensor> Optimizer::state() const {
  const bool moments = uses_moments(configuration_.kind);
  std::vector<NamedTensor> named;
  const auto add = [&](const char* prefix, const std::vector<at::Tensor>& tensors) {
    for (std::size_t i = 0; i < tensors.size(); ++i) named.push_back({prefix + names_[i], tensors[i]});
  };
  add(moments ? "exp_avg." : "momentum_buffer.", all_.first);
  add("exp_avg_sq.", all_.second);
  add("step.", all_.steps);
  for (std::size_t i = 0; i < copies_.size(); ++i) {
    if (copies_[i].defined()) named.push_back({"master." + names_[i], all_.parameters[i]});
  }
  return named;
}

}  // namespace onebatch
