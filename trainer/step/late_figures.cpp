#include "trainer/step/late_figures.hpp"

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace onebatch {

void LateFigures::leave(OfOneStep step, at::Tensor norm) {
  if (!left_out_.defined()) {
    left_out_ = at::zeros({}, norm.options().dtype(at::kFloat));
    one_ = at::ones_like(left_out_);
  }
  // Multiplies the norm by one: what is wanted is the look at it, in one kernel, which sets and never clears.
  at::_amp_foreach_non_finite_check_and_unscale_(norm, left_out_, one_);
  const at::Tensor numbers = at::cat({step.sums.unread->numbers, norm});
  at::Tensor host = numbers.to(at::kCPU, /*non_blocking=*/true);
  std::optional<c10::Event> arrived;
  if (!norm.is_cpu()) {
    arrived.emplace(norm.device().type());
    arrived->record(c10::impl::VirtualGuardImpl(norm.device().type()).getStream(norm.device()));
  }
  unread_.push_back({std::move(step), std::move(host), std::move(arrived)});
}

StepFigures LateFigures::take() {
  Unread first = std::move(unread_.front());
  unread_.pop_front();
  if (first.arrived) first.arrived->synchronize();
  const std::span read(first.numbers.const_data_ptr<double>(), static_cast<std::size_t>(first.numbers.numel()));
  LocalSums& sums = first.step.sums;
  settle(sums, read.first(read.size() - 1));
  return {.loss = sums.loss,
          .grad_norm = read.back(),
          .compute_seconds = sums.compute_seconds,
          .comm_seconds = first.step.reduced->seconds_since(*first.step.computed),
          .data_wait_seconds = sums.data_wait_seconds};
}

void LateFigures::forget() {
  unread_.clear();
  if (left_out_.defined()) left_out_.zero_();
}

}  // namespace onebatch
