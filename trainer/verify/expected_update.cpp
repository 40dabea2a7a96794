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
  return it == named.end() ? at::Tensor() : it->second;
}

// On the host, one-dimensional; its own memory where it can be.
at::Tensor flat(const at::Tensor& tensor) {
  return tensor.defined() ? numbers_in(tensor).cpu().flatten() : tensor;
}

at::Tensor flat_copy(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  const at::Tensor numbers = numbers_in(tensor);
  return numbers.to(at::kCPU, numbers.scalar_type(), /*non_blocking=*/false, /*copy=*/true).flatten();
}

at::Tensor part(const at::Tensor& flat, std::int64_t begin, std::int64_t length) {
  return flat.defined() ? flat.narrow(0, begin, length).to(at::kDouble) : flat;
}

// What is off, and what it is a part of.
struct Norms {
  double error = 0.0;
  double change = 0.0;
  double whole = 0.0;

  void add(const at::Tensor& now, const at::Tensor& wanted, const at::Tensor& before) {
    add({norm(now.sub(wanted)), norm(wanted.sub(before)), norm(wanted)});
  }
  void add(const Norms& other) {
    error = std::hypot(error, other.error);
    change = std::hypot(change, other.change);
    whole = std::hypot(whole, other.whole);
  }

  // Of what was changed; of all where nothing was.
  [[nodiscard]] double relative_error() const { return ratio(error, change > 0.0 ? change : whole); }
  [[nodiscard]] double whole_over_change() const { return change > 0.0 ? whole / change : 1.0; }
};

// Over all parameters, and where most is off.
struct Total {
  Norms norms;
  double most = -1.0;
  std::string worst;

  void add(const std::string& name, const Norms& one) {
    norms.add(one);
    if (std::isnan(most) || one.error <= most) return;
    most = one.error;
    worst = name;
  }
};

}  // namespace

ExpectedUpdate::ExpectedUpdate(const Configuration& configuration, const Replica& replica)
    : configuration_(configuration), replica_(replica) {
  const auto state = by_name(replica.optimizer.state());
  for (const auto& [name, tensor] : replica.gradients.parameters()) {
    const at::Tensor master = found(state, "master." + name);
    Tensors before;
    before.weight = flat_copy(master.defined() ? master : tensor);
    before.average = flat_copy(found(state, k_average_prefix + name));
    if (knows_the_optimizer()) {  // another kind's state has names of its own
      const at::Tensor first = found(state, "exp_avg." + name);
      const at::Tensor count = found(state, "step." + name);
      before.first = flat_copy(first.defined() ? first : found(state, "momentum_buffer." + name));
      before.second = flat_copy(found(state, "exp_avg_sq." + name));
      before.count = count.defined() ? count.item<double>() : 0.0;
    }
    before_.push_back(std::move(before));
  }
}

ExpectedUpdate::Tensors ExpectedUpdate::part_of(const Tensors& whole, std::int64_t begin, std::int64_t length) {
  return {part(whole.weight, begin, length), part(whole.first, begin, length), part(whole.second, begin, length),
          part(whole.average, begin, length), whole.count};
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

at::Tensor ExpectedUpdate::expected(const std::string& name, const Tensors& t, at::Tensor g, double lr) const {
  const OptimizerConfiguration& c = configuration_.optimizer;
  const ParameterGroup* group = group_of(name);
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
  const double step = t.count + 1.0;
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
  Total total;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const auto& [name, tensor] = replica_.gradients.parameters()[i];
    const at::Tensor master = found(state, "master." + name);
    const at::Tensor now = flat(master.defined() ? master : tensor);
    const at::Tensor whole_gradient = gradient[i].tensor.flatten();
    const bool kept = std::find(not_reached.begin(), not_reached.end(), name) != not_reached.end();
    Norms norms;
    for_each_part(now.numel(), [&](std::int64_t begin, std::int64_t length) {
      const Tensors before = part_of(before_[i], begin, length);
      at::Tensor g = part(whole_gradient, begin, length);
      if (c.max_grad_value) g = g.clamp(-*c.max_grad_value, *c.max_grad_value);
      const at::Tensor wanted = kept ? before.weight : expected(name, before, g.mul(coefficient), lr);
      norms.add(part(now, begin, length), wanted, before.weight);
    });
    total.add(name, norms);
  }
  const double tolerance = k_roundings_of_weight * u * total.norms.whole_over_change() +
                           std::min(k_most_of_update, k_roundings_of_update * u);
  return {total.norms.relative_error(), tolerance, total.worst};
}

std::optional<ExpectedUpdate::Result> ExpectedUpdate::compare_average() const {
  const double decay = configuration_.optimizer.ema_decay;
  if (decay == 0.0) return std::nullopt;
  const auto state = by_name(replica_.optimizer.state());
  Total total;
  for (std::size_t i = 0; i < before_.size(); ++i) {
    const auto& [name, tensor] = replica_.gradients.parameters()[i];
    const at::Tensor master = found(state, "master." + name);
    const at::Tensor weight = flat(master.defined() ? master : tensor);
    const at::Tensor average = flat(found(state, k_average_prefix + name));
    Norms norms;
    for_each_part(weight.numel(), [&](std::int64_t begin, std::int64_t length) {
      const at::Tensor before = part(before_[i].average, begin, length);
      const at::Tensor wanted = before.mul(decay).add(part(weight, begin, length), 1.0 - decay);
      norms.add(part(average, begin, length), wanted, before);
    });
    total.add(name, norms);
  }
  const bool wide = replica_.gradients.flat().scalar_type() == at::kDouble;
  const double rounding = k_roundings_of_average * unit_roundoff(wide ? at::kDouble : at::kFloat);
  return Result{total.norms.relative_error(), rounding * total.norms.whole_over_change(), total.worst};
}

}  // namespace onebatch
