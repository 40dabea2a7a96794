#include "trainer/optim/weight_average.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_lerp.h>

namespace onebatch {
namespace {

at::ScalarType type_of_average(const at::Tensor& updated) {
  return updated.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace

void WeightAverage::add(const at::Tensor& own, const at::Tensor& updated) {
  own_.push_back(own);
  updated_.push_back(updated);
  averages_.push_back(updated.detach().to(type_of_average(updated), /*non_blocking=*/false, /*copy=*/true));
}

bool WeightAverage::is_widened(std::size_t index) const {
  return updated_[index].scalar_type() != averages_[index].scalar_type();
}

// Of the average's type.
std::vector<at::Tensor> WeightAverage::weights() const {
  std::vector<at::Tensor> weights;
  weights.reserve(updated_.size());
  for (std::size_t i = 0; i < updated_.size(); ++i)
    weights.push_back(updated_[i].detach().to(averages_[i].scalar_type()));
  return weights;
}

void WeightAverage::update() {
  const at::NoGradGuard no_grad;
  at::_foreach_lerp_(averages_, weights(), 1.0 - decay_);
}

void WeightAverage::begin() {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < averages_.size(); ++i) averages_[i].copy_(updated_[i]);
}

void WeightAverage::swap(std::size_t index) {
  const at::Tensor trained = updated_[index].detach().clone();
  updated_[index].copy_(averages_[index]);
  averages_[index].copy_(trained);
}

void WeightAverage::show() {
  const at::NoGradGuard no_grad;
  kept_.resize(own_.size());
  for (std::size_t i = 0; i < own_.size(); ++i) {
    if (has_master(i)) {
      own_[i].copy_(averages_[i]);
    } else if (is_widened(i)) {
      kept_[i] = updated_[i].detach().clone();
      updated_[i].copy_(averages_[i]);
    } else {
      swap(i);
    }
  }
}

void WeightAverage::hide() {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < own_.size(); ++i) {
    if (has_master(i)) {
      own_[i].copy_(updated_[i]);
    } else if (is_widened(i)) {
      updated_[i].copy_(kept_[i]);
    } else {
      swap(i);
    }
  }
  kept_.clear();
}

}  // namespace onebatch
