#include "trainer/optim/optimizer.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

namespace onebatch {
namespace {

bool uses_moments(OptimizerKind kind) {
  return kind != OptimizerKind::sgd;
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
    copies_.push_back(is_copy ? tensor : at::Tensor());
    all_.parameters.push_back(is_copy ? tensor.detach().to(gradient.scalar_type()) : tensor);
    all_.gradients.push_back(gradient);
    if (moments || momentum) all_.first.push_back(at::zeros_like(gradient));
    if (!moments) continue;
    all_.second.push_back(at::zeros_like(gradient));
    all_.steps.push_back(at::zeros({}, tensor.options().requires_grad(false).dtype(at::kFloat)));
  }
}

Optimizer::Tensors Optimizer::select(const std::vector<double>& touched) const {
  if (std::all_of(touched.begin(), touched.end(), [](double flag) { return flag > 0.0; })) return all_;
  Tensors some;
  const auto pick = [&](const std::vector<at::Tensor>& from, std::vector<at::Tensor>& to, std::size_t i) {
    if (!from.empty()) to.push_back(from[i]);
  };
  for (std::size_t i = 0; i < touched.size(); ++i) {
    if (touched[i] == 0.0) continue;
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
  const Tensors t = select(touched);
  if (t.parameters.empty()) return;
  const auto& c = configuration_;
  for (const at::Tensor& count : t.steps) count.add_(1.0);
  switch (c.kind) {
    case OptimizerKind::adamw:
      at::_fused_adamw_(t.parameters, t.gradients, t.first, t.second, {}, t.steps, lr, c.betas[0], c.betas[1], c.weight_decay, c.eps, false,
                        false);
      break;
    case OptimizerKind::adam:
      at::_fused_adam_(t.parameters, t.gradients, t.first, t.second, {}, t.steps, lr, c.betas[0], c.betas[1], c.weight_decay, c.eps, false,
                       false);
      break;
    case OptimizerKind::sgd:
      // With a buffer of zeros the first step is no special case: momentum * 0 + gradient.
      at::_fused_sgd_(t.parameters, t.gradients, t.first, c.weight_decay, c.momentum, lr, /*dampening=*/0.0, c.nesterov, false,
                      /*is_first_step=*/false);
      break;
  }
  copy_masters(touched);
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
