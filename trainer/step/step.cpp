// The order of things in a step is Note [Sum, then divide once]: micro-batches add summed gradients into one flat buffer, ranks combine by
// SUM, the true weight of the global batch divides once, then comes clipping, then the optimizer.
#include "trainer/step/step.hpp"

#include "trainer/base/error.hpp"
#include "trainer/device/agreement.hpp"
#include "trainer/step/graph_step.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>

namespace onebatch {
namespace {

using Clock = std::chrono::steady_clock;

// One float64 reduction carries everything small of a step: integers up to 2^53 are exact in it.
enum Slot : std::size_t { k_loss, k_weight, k_stop, k_save, k_failed, k_discard, k_out_of_memory, k_first_per_rank };
enum PerRank : std::size_t { k_step, k_failed_size, k_compute_seconds, k_comm_seconds, k_memory_peak, k_num_per_rank };

// Every rank finds the same, so all throw.
void check_step(std::size_t rank, std::int64_t step, std::int64_t step_of_first) {
  if (step == step_of_first) return;
  throw AgreedError(ExitCode::peer_failed, "rank " + std::to_string(rank) + " is at step " + std::to_string(step + 1) +
                                               ", rank 0 at step " + std::to_string(step_of_first + 1) +
                                               ": they do not train the same run");
}

SavedTensors running_statistics(const Replica& replica) {
  return SavedTensors(replica.has_batch_statistics ? replica.model->buffers() : std::vector<NamedTensor>());
}

}  // namespace

Clipping clipping_of(const OptimizerConfiguration& optimizer) {
  return {optimizer.max_grad_norm, optimizer.max_grad_value};
}

std::span<const std::int64_t> slice_of_rank(std::span<const std::int64_t> global_batch, const Plan& plan, int rank) {
  std::size_t begin = 0;
  for (const RankPlan& share : plan.ranks) {
    const auto count = static_cast<std::size_t>(share.samples);
    if (share.rank == rank) return global_batch.subspan(begin, count);
    begin += count;
  }
  throw std::logic_error("the plan has no rank " + std::to_string(rank));
}

TrainingStep::TrainingStep(Replica& replica, const Dataset& data, GradientReducer& reducer, comm::Communicator& control,
                           const Clipping& clipping)
    : replica_(replica), data_(data), reducer_(reducer), control_(control), clipping_(clipping) {}

StepTotals TrainingStep::run(const StepRequest& request) {
  const SavedTensors before = running_statistics(replica_);
  StepTotals totals = gradient_of(request, before);
  if (totals.discarded) return totals;
  totals.loss_scale = replica_.loss_scale.scale();
  totals.skipped = totals.weight == 0.0;
  if (request.on_gradient) request.on_gradient();
  if (totals.skipped) return totals;
  const Span span(replica_.timeline, "optimizer", "optimizer");
  totals.grad_norm = gradient_norm(replica_.gradients.flat(), control_);
  totals.overflowed = !std::isfinite(totals.grad_norm);
  if (request.before_update) request.before_update();
  totals.can_go_on = replica_.loss_scale.update(!totals.overflowed);
  if (totals.overflowed) {
    before.restore();
    return totals;
  }
  clip_gradient(replica_.gradients.flat(), totals.grad_norm, clipping_);
  replica_.optimizer.step(request.lr, touched_);
  return totals;
}

StepTotals TrainingStep::compute_gradient(const StepRequest& request) {
  return gradient_of(request, running_statistics(replica_));
}

StepTotals TrainingStep::gradient_of(const StepRequest& request, const SavedTensors& before) {
  if (request.plan.global_batch_size != static_cast<std::int64_t>(request.global_batch.size())) {
    throw std::logic_error("a plan of " + std::to_string(request.plan.global_batch_size) + " samples for a batch of " +
                           std::to_string(request.global_batch.size()));
  }
  replica_.loss_scale.set_batch_size(request.plan.global_batch_size);
  StepTotals totals = add_up(request);
  while (!totals.discarded && !is_reproducible()) {
    before.restore();
    totals = add_up(request);
  }
  if (totals.discarded) {
    before.restore();
    return totals;
  }
  control_.set_activity("the optimizer of step " + std::to_string(request.step + 1));
  replica_.gradients.finish_sum(totals.weight != 0.0 ? totals.weight * replica_.loss_scale.factor() : 1.0);
  return totals;
}

bool TrainingStep::is_reproducible() {
  ReproducibleSum* sum = replica_.gradients.reproducible();
  if (sum == nullptr) return true;
  std::vector<double> largest = sum->largest();
  control_.all_reduce(largest.data(), largest.size(), comm::ScalarType::float64, comm::ReduceOp::max);
  return sum->follow(largest);
}

StepTotals TrainingStep::add_up(const StepRequest& request) {
  control_.set_activity("micro-batches of step " + std::to_string(request.step + 1));
  const RankPlan& share = request.plan.ranks.at(static_cast<std::size_t>(control_.rank()));
  Local local;
  // A failure is kept until all ranks know of it: they wait for this one in the reduction, and it comes there, with a flag.
  try {
    replica_.gradients.begin_step();
    replica_.device.reset_peak();
    local.sums = accumulate_gradient(replica_, data_, slice_of_rank(request.global_batch, request.plan, control_.rank()),
                                     share.micro_batches, request.step,
                                     {.before_last = [this] { reducer_.begin_last_backward(); },
                                      .split_on_out_of_memory = true,
                                      .ranks = &control_,
                                      .global_batch = request.global_batch});
  } catch (const StepAbandoned&) {
    // The rank that failed says so below.
  } catch (const MicroBatchDoesNotFit& error) {
    local.discard = true;
    local.sums.failed_size = error.size();
    local.sums.out_of_memory_events = 1;
  } catch (...) {
    local.failure = std::current_exception();
  }
  if (!local.failure) local.failure = request.failure;

  const auto start = Clock::now();
  {
    const Span span(replica_.timeline, "gradient", "wait");
    reducer_.finish();
    replica_.device.synchronize();
  }
  local.comm_seconds = std::chrono::duration<double>(Clock::now() - start).count();

  return combine(local, request);
}

StepTotals TrainingStep::combine(const Local& local, const StepRequest& request) {
  const auto size = static_cast<std::size_t>(control_.size());
  const auto rank = static_cast<std::size_t>(control_.rank());
  const std::size_t first_touched = k_first_per_rank + k_num_per_rank * size;
  const auto& touched = replica_.gradients.touched();
  std::vector<double> sums(first_touched + touched.size(), 0.0);
  const auto per_rank = [&](std::size_t r, PerRank what) -> double& { return sums[k_first_per_rank + r * k_num_per_rank + what]; };
  sums[k_loss] = local.sums.loss;
  sums[k_weight] = local.sums.weight;
  sums[k_stop] = request.stop_requested ? 1.0 : 0.0;
  sums[k_save] = request.save_due ? 1.0 : 0.0;
  sums[k_failed] = local.failure ? 1.0 : 0.0;
  sums[k_discard] = local.discard ? 1.0 : 0.0;
  sums[k_out_of_memory] = static_cast<double>(local.sums.out_of_memory_events);
  per_rank(rank, k_failed_size) = static_cast<double>(local.sums.failed_size);
  per_rank(rank, k_step) = static_cast<double>(request.step);
  per_rank(rank, k_compute_seconds) = local.sums.compute_seconds;
  per_rank(rank, k_comm_seconds) = local.comm_seconds;
  per_rank(rank, k_memory_peak) = static_cast<double>(replica_.device.peak_bytes());
  std::copy(touched.begin(), touched.end(), sums.begin() + static_cast<std::ptrdiff_t>(first_touched));

  if (request.before_sums) request.before_sums();
  const Span span(replica_.timeline, "sums", "wait");
  control_.all_reduce(sums.data(), sums.size(), comm::ScalarType::float64, comm::ReduceOp::sum);

  if (sums[k_failed] > 0.0) throw_failure(local.failure, request);
  StepTotals totals;
  totals.loss_sum = sums[k_loss];
  totals.weight = sums[k_weight];
  totals.stop_requested = sums[k_stop] > 0.0;
  totals.save_due = sums[k_save] > 0.0;
  totals.discarded = sums[k_discard] > 0.0;
  totals.out_of_memory_events = static_cast<std::int64_t>(sums[k_out_of_memory]);
  totals.reduced_bytes = reducer_.reduced_bytes() + (size > 1 ? static_cast<std::int64_t>(sums.size() * sizeof(double)) : 0);
  totals.exposed_comm_seconds = per_rank(0, k_comm_seconds);
  for (std::size_t r = 0; r < size; ++r) {
    check_step(r, static_cast<std::int64_t>(per_rank(r, k_step)), static_cast<std::int64_t>(per_rank(0, k_step)));
    totals.failed_sizes.push_back(static_cast<std::int64_t>(per_rank(r, k_failed_size)));
    totals.compute_seconds.push_back(per_rank(r, k_compute_seconds));
    totals.memory_peak_bytes.push_back(static_cast<std::int64_t>(per_rank(r, k_memory_peak)));
    totals.exposed_comm_seconds = std::min(totals.exposed_comm_seconds, per_rank(r, k_comm_seconds));
  }
  touched_.assign(sums.begin() + static_cast<std::ptrdiff_t>(first_touched), sums.end());
  return totals;
}

void TrainingStep::throw_failure(const std::exception_ptr& mine, const StepRequest& request) {
  if (request.on_failure) request.on_failure(mine != nullptr);
  agree(control_, [&] {
    if (mine) std::rethrow_exception(mine);
  });
}

}  // namespace onebatch
