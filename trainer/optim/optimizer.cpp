#include "trainer/optim/optimizer.hpp"

#include "trainer/base/error.hpp"
#include "trainer/base/name_patterns.hpp"
#include "trainer/models/layout.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <set>
#include <stdexcept>

namespace onebatch {
namespace {

std::size_t group_of(const std::string& name, const std::vector<ParameterGroup>& groups) {
  const auto found =
      std::ranges::find_if(groups, [&](const ParameterGroup& group) { return matches_name(group.match, name); });
  return static_cast<std::size_t>(found - groups.begin());
}

// The fused calls take the n-th element in memory of one for that of the other.
void check_layout(const std::vector<std::string>& names, const std::vector<at::Tensor>& parameters,
                  const std::vector<at::Tensor>& others) {
  for (std::size_t i = 0; i < others.size(); ++i) {
    if (parameters[i].is_non_overlapping_and_dense() && same_order(parameters[i], others[i])) continue;
    throw std::logic_error("the parameter " + names[i] +
                           ", its gradient and the optimizer's state differ in the order of their elements");
  }
}

at::Tensor zeros_of(StateShape shape, const at::Tensor& gradient) {
  if (shape == StateShape::parameter) return at::zeros_like(gradient);
  return at::zeros({}, gradient.options().requires_grad(false).dtype(at::kFloat));
}

}  // namespace

Optimizer::Optimizer(const OptimizerConfiguration& configuration, const FlatGradients& gradients)
    : configuration_(configuration),
      kind_(chosen_kind<OptimizerKind>(configuration)),
      state_(kind_.state(configuration)) {
  std::set<std::string> taken = {"ema", "master"};  // what a checkpoint has beside them
  for (const OptimizerState& one : state_) {
    if (!taken.insert(one.name).second)
      throw std::logic_error("the optimizer " + configuration.kind + " calls its state " + one.name +
                             ", which is taken: give it another name");
  }
  all_.state.resize(state_.size());
  for (std::size_t i = 0; i < gradients.parameters().size(); ++i) {
    const auto& [name, tensor] = gradients.parameters()[i];
    const at::Tensor& gradient = gradients.views()[i];
    const bool is_copy = tensor.scalar_type() != gradient.scalar_type();
    names_.push_back(name);
    group_of_.push_back(group_of(name, configuration.groups));
    copies_.push_back(is_copy ? tensor : at::Tensor());
    all_.parameters.push_back(is_copy ? tensor.detach().to(gradient.scalar_type()) : tensor);
    all_.gradients.push_back(gradient);
    for (std::size_t k = 0; k < state_.size(); ++k) all_.state[k].push_back(zeros_of(state_[k].shape, gradient));
  }
  check_layout(names_, all_.parameters, all_.gradients);
  for (std::size_t k = 0; k < state_.size(); ++k) {
    if (state_[k].shape == StateShape::parameter) check_layout(names_, all_.parameters, all_.state[k]);
  }
  begin_average();
  for (std::size_t group = 0; group < configuration.groups.size(); ++group) {
    if (std::ranges::find(group_of_, group) != group_of_.end()) continue;
    throw UserError("optimizer.groups: no parameter is left for the match \"" + configuration.groups[group].match +
                    "\": names of what is trained are " + names_.front() +
                    (names_.size() > 1 ? ", ..., " + names_.back() : "") +
                    ", and each belongs to the first group that matches it");
  }
}

void Optimizer::begin_average() {
  if (configuration_.ema_decay == 0.0) return;
  average_.emplace(configuration_.ema_decay);
  for (std::size_t i = 0; i < names_.size(); ++i)
    average_->add(copies_[i].defined() ? copies_[i] : all_.parameters[i], all_.parameters[i]);
}

OptimizerTensors Optimizer::select(std::size_t group, const std::vector<double>& touched) const {
  const bool all = configuration_.groups.empty() &&
                   std::all_of(touched.begin(), touched.end(), [](double flag) { return flag > 0.0; });
  if (all) return all_;
  OptimizerTensors some;
  some.left_out = all_.left_out;
  some.state.resize(state_.size());
  for (std::size_t i = 0; i < touched.size(); ++i) {
    if (touched[i] == 0.0 || group_of_[i] != group) continue;
    some.parameters.push_back(all_.parameters[i]);
    some.gradients.push_back(all_.gradients[i]);
    for (std::size_t k = 0; k < state_.size(); ++k) some.state[k].push_back(all_.state[k][i]);
  }
  return some;
}

void Optimizer::step(double lr, const std::vector<double>& touched, const at::Tensor& left_out) {
  const at::NoGradGuard no_grad;
  all_.left_out = left_out;
  const auto& c = configuration_;
  for (std::size_t group = 0; group < c.groups.size(); ++group) {
    const ParameterGroup& own = c.groups[group];
    const double rate = !own.lr ? lr : (c.lr > 0.0 ? lr * (*own.lr / c.lr) : 0.0);
    update(select(group, touched), {rate, own.weight_decay.value_or(c.weight_decay)});
  }
  update(select(c.groups.size(), touched), {lr, c.weight_decay});
  copy_masters(touched);
  if (average_) average_->update();
}

void Optimizer::update(const OptimizerTensors& tensors, const UpdateRates& rates) const {
  if (!tensors.parameters.empty()) kind_.update(tensors, configuration_, rates);
}

void Optimizer::copy_masters(const std::vector<double>& touched) {
  for (std::size_t i = 0; i < copies_.size(); ++i) {
    if (copies_[i].defined() && touched[i] != 0.0) copies_[i].copy_(all_.parameters[i]);
  }
}

std::vector<NamedTensor> Optimizer::state() const {
  std::vector<NamedTensor> named;
  for (std::size_t k = 0; k < state_.size(); ++k) {
    for (std::size_t i = 0; i < names_.size(); ++i)
      named.push_back({state_[k].name + "." + names_[i], all_.state[k][i]});
  }
  for (std::size_t i = 0; i < copies_.size(); ++i) {
    if (copies_[i].defined()) named.push_back({"master." + names_[i], all_.parameters[i]});
  }
  for (std::size_t i = 0; average_ && i < names_.size(); ++i)
    named.push_back({k_average_prefix + names_[i], average_->tensors()[i]});
  return named;
}

std::int64_t states_per_parameter(const OptimizerConfiguration& configuration) {
  const auto state = chosen_kind<OptimizerKind>(configuration).state(configuration);
  return std::ranges::count_if(state, [](const OptimizerState& one) { return one.shape == StateShape::parameter; }) +
         (configuration.ema_decay > 0.0 ? 1 : 0);
}

}  // namespace onebatch
