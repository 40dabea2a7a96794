#include "trainer/verify/expected_update.hpp"

#include <ATen/ops/linalg_vector_norm.h>
#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace onebatch {
namespace {

constexpr double k_roundings_of_weight = 8.0;
constexpr double k_roundings_of_update = 2048.0;  // 1 - beta2 in float32 has three digits fewer than beta2
constexpr double k_roundings_of_average = 4.0;
constexpr double k_most_of_update = 0.05;
constexpr double k_clip_eps = 1e-6;  // as torch.nn.utils.clip_grad_norm_ adds it

double norm(const at::Tensor& tensor) {
  return at::linalg_vector_norm(tensor).item<double>();
}

std::map<std::string, at::Tensor> by_name(const std::vector<NamedTensor>& tensors) {
  std::map<std::string, at::Tensor> named;
  for (const auto& [name, tensor] : tensors) named.emplace(name, tensor);
  return named;
}

at::Tensor found(const std::map<std::string, at::Tensor>& named, const std::string& name) {
  const auto it = named.find(name);
  return it == named.end() ? at::Tensor() : as_numbers(it->second);
}

}  // namespace

ExpectedUpdate::ExpectedUpdate(const Configuration& configuration, const Replica& replica)
    : configuration_(configuration), replica_(replica) {
  const auto state = by_name(replica.optimizer.state());
  for (const auto& [name, tensor] : replica.gradients.parameters()) {
    const at::Tensor master = found(state, "master." + name);
    const at::Tensor first = found(state, "exp_avg." + name);
    before_.push_back({master.defined() ? master : as_numbers(tensor),
                       first.defined() ? first : found(state, "momentum_buffer." + name),
                       found(state, "exp_avg_sq." + name), found(state, "step." + name),
                       found(state, k_average_prefix + name)});
  }
}

bool ExpectedUpdate::knows_the_optimizer() const {
  const std::string& kind = configuration_.optimizer.kind;
  return kind == "adamw" || kind == "adam" || kind == "sgd";
}

const ParameterGroup* ExpectedUpdate::group_of(const std::string& name) const {
  const auto& groups = configuration_.optimizer.groups;
  const auto it = std::find_if(groups.begin(), groups.end(), [&](const ParameterGroup& group) {
    return group.match == name || ::fnmatch(group.match.c_str(), name.c_str(), 0) == 0;
  });
  return it == groups.end() ? nullptr : &*it;
}

at::Tensor ExpectedUpdate::expected(std::size_t index, at::Tensor g, double lr) const {
  const OptimizerConfiguration& c = configuration_.optimizer;
  const Tensors& t = before_[index];
  const ParameterGroup* group = group_of(replica_.gradients.parameters()[index].name);
  const double decay = group != nullptr ? group->weight_decay.value_or(c.weight_decay) : c.weight_decay;
  const double rate = group != nullptr && group->lr ? (c.lr > 0.0 ? lr * *group->lr / c.lr : 0.0) : lr;
  at::Tensor w = t.weight;
  if (c.kind == "adamw")
    w = w.mul(1.0 - rate * decay);
  else if (decay != 0.0)
    g = g.add(w, decay);
  if (c.kind == "sgd") {
    if (c.momentum == 0.0) return w.sub(g, rate);
    const at::Tensor moment = t.first.mul(c.momentum).add(g);
    return w.sub(c.nesterov ? g.add(moment, c.momentum) : moment, rate);
  }
  const double step = t.count.item<double>() + 1.0;
  const at::Tensor m = t.first.mul(c.betas[0]).add(g, 1.0 - c.betas[0]).div(1.0 - std::pow(c.betas[0], step));
  const at::Tensor v = t.second.mul(c.betas[1]).add(g.square(), 1.0 - c.betas[1]).div(1.0 - std::pow(c.betas[1], step));
  return w.sub(m.div(v.sqrt().add(c.eps)), rate);
}

ExpectedUpdate::Result ExpectedUpdate::compare(const Gradient& gradient, const std::vector<std::string>& not_reached,
                                               double lr) const {
  const OptimizerConfiguration& c = configuration_.optimizer;
  const double coefficient = c.max_grad_norm ? std::min(1.0, *c.max_grad_norm / (norm_of(gradient) + k_clip_eps)) : 1.0;
  const auto state = by_name(replica_.optimizer.state());
  const double u = unit_roundoff(replica_.gradients.flat().scalar_type());
  double error = 0.0, update = 0.0, weight = 0.0, worst = -1.0;
  Result result;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const auto& [name, tensor] = replica_.gradients.parameters()[i];
    at::Tensor g = gradient[i].tensor.reshape_as(before_[i].weight);
    if (c.max_grad_value) g = g.clamp(-*c.max_grad_value, *c.max_grad_value);
    const bool kept = std::find(not_reached.begin(), not_reached.end(), name) != not_reached.end();
    const at::Tensor wanted = kept ? before_[i].weight : expected(i, g.mul(coefficient), lr);
    const at::Tensor master = found(state, "master." + name);
    const double off = norm((master.defined() ? master : as_numbers(tensor)).sub(wanted));
    error = std::hypot(error, off);
    update = std::hypot(update, norm(wanted.sub(before_[i].weight)));
    weight = std::hypot(weight, norm(wanted));
    if (!(off <= worst)) {
      worst = off;
      result.worst = name;
    }
  }
  result.relative_l2 = update > 0.0 ? ratio(error, update) : ratio(error, weight);
  result.tolerance = k_roundings_of_weight * u * (update > 0.0 ? weight / update : 1.0) +
                     std::min(k_most_of_update, k_roundings_of_update * u);
  return result;
}

std::optional<ExpectedUpdate::Result> ExpectedUpdate::compare_average() const {
  const double decay = configuration_.optimizer.ema_decay;
  if (decay == 0.0) return std::nullopt;
  const auto state = by_name(replica_.optimizer.state());
  double error = 0.0, added = 0.0, average = 0.0, worst = -1.0;
  Result result;
  for (std::size_t i = 0; i < before_.size(); ++i) {
    const auto& [name, tensor] = replica_.gradients.parameters()[i];
    const at::Tensor master = found(state, "master." + name);
    const at::Tensor weight = master.defined() ? master : as_numbers(tensor);
    const at::Tensor wanted = before_[i].average.mul(decay).add(weight, 1.0 - decay);
    const double off = norm(found(state, k_average_prefix + name).sub(wanted));
    error = std::hypot(error, off);
    added = std::hypot(added, norm(wanted.sub(before_[i].average)));
    average = std::hypot(average, norm(wanted));
    if (!(off <= worst)) {
      worst = off;
      result.worst = name;
    }
  }
  const bool wide = replica_.gradients.flat().scalar_type() == at::kDouble;
  const double rounding = k_roundings_of_average * unit_roundoff(wide ? at::kDouble : at::kFloat);
  result.relative_l2 = ratio(error, added > 0.0 ? added : average);
  result.tolerance = rounding * (added > 0.0 ? average / added : 1.0);
  return result;
}

}  // namespace onebatch
