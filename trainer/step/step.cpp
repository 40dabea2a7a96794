// One optimizer step. The order of things in it is Note [Sum, then divide once]: micro-batches add summed gradients
// into one flat buffer, ranks combine by SUM, the true weight of the global batch divides once, then comes clipping,
// then the optimizer.
#include "trainer/step/step.hpp"

#include "trainer/base/error.hpp"
#include "trainer/base/transfer.hpp"
#include "trainer/data/augment.hpp"
#include "trainer/device/agreement.hpp"
#include "trainer/models/compiled_program.hpp"
#include "trainer/models/sample_dropout.hpp"
#include "trainer/step/step_exchange.hpp"
#include "trainer/step/step_graphs.hpp"

#include <ATen/ops/cat.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace onebatch {
namespace {

// Every rank finds the same, so all throw.
void check_steps(const std::vector<std::int64_t>& steps) {
  for (std::size_t rank = 0; rank < steps.size(); ++rank) {
    if (steps[rank] == steps[0]) continue;
    throw AgreedError(ExitCode::peer_failed,
                      fmt::format("rank {} is at step {}, rank 0 at step {}: they do not train the same run", rank,
                                  steps[rank] + 1, steps[0] + 1));
  }
}

StepTotals totals_of(const StepSums& sums) {
  StepTotals totals;
  totals.weight = sums.weight;
  totals.stop_requested = sums.stop_requested;
  totals.save_due = sums.save_due;
  totals.has_news = sums.has_news;
  totals.discarded = sums.discard;
  totals.out_of_memory_events = sums.out_of_memory_events;
  totals.failed_sizes = sums.failed_sizes;
  totals.memory_peak_bytes = sums.memory_peak_bytes;
  return totals;
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
  throw std::logic_error(fmt::format("the plan has no rank {}", rank));
}

TrainingStep::TrainingStep(const MicroBatchRunner& runner, const Dataset& data, GradientReducer& reducer,
                           comm::Communicator& control, const Clipping& clipping, StepGraphs* graphs)
    : runner_(runner),
      replica_(runner.replica()),
      data_(data),
      reducer_(reducer),
      control_(control),
      clipping_(clipping),
      graphs_(graphs) {}

StepTotals TrainingStep::run(const StepRequest& request) {
  begin(request);
  // What forwards change besides the gradient: a pass that is made again, or is of no use, changes nothing.
  KeptTensors& buffers_before = buffers_before_of(request.step);
  buffers_before.keep(changed_by_what_may_be_discarded());
  StepTotals totals;
  Part mine;
  for (bool again = true; again;) {
    mine = forward_and_backward(request);
    reduce(mine);
    totals = agree(mine, request);
    again = !totals.discarded && !is_reproducible();
    if (again || totals.discarded) buffers_before.restore();
  }
  if (totals.discarded) return totals;
  totals.skipped = totals.weight == 0.0;
  totals.is_late = request.may_be_late && can_be_late(mine, totals);
  if (totals.is_late)
    leave_figures(mine, totals);
  else
    read_figures(mine, totals, request);
  if (request.on_gradient) request.on_gradient();
  if (totals.skipped) return totals;

  const Span span(replica_.timeline, "optimizer", "optimizer");
  if (request.before_update) request.before_update();
  totals.can_go_on = replica_.loss_scale.update(totals.overflowed ? GradientRange::overflowed : GradientRange::finite);
  if (totals.overflowed) {
    if (replica_.has_batch_statistics) buffers_before.restore();
    return totals;
  }
  clip_gradient(replica_.gradients.flat(), totals.grad_norm, clipping_);
  replica_.optimizer.step(request.lr, touched_, late_.empty() ? at::Tensor() : late_.left_out());
  return totals;
}

void TrainingStep::begin(const StepRequest& request) {
  const auto samples = static_cast<std::int64_t>(request.global_batch.size());
  if (request.plan.global_batch_size != samples)
    throw std::logic_error(
        fmt::format("a plan of {} samples for a batch of {}", request.plan.global_batch_size, samples));
  replica_.loss_scale.set_batch_size(samples);
}

TrainingStep::Part TrainingStep::forward_and_backward(const StepRequest& request) {
  control_.set_activity(fmt::format("micro-batches of step {}", request.step + 1));
  const RankPlan& share = request.plan.ranks.at(static_cast<std::size_t>(control_.rank()));
  Part mine;
  // A failure is kept until all ranks know of it: they wait for this one in the reduction, and it comes there, with a
  // flag.
  try {
    const bool is_native = runner_.apart() == nullptr && graphs_ == nullptr && runs_native_code(*replica_.model);
    replica_.gradients.begin_step(is_native ? Begin::unwritten : Begin::zeroed);
    replica_.device.reset_peak();
    const TrainingData data(data_, replica_.augment, {replica_.seed, request.epoch});
    FinalParameters told;
    if (reducer_.hears_of_parameters())
      told = {[this] { reducer_.begin_last_backward(); },
              [this](std::size_t index) { reducer_.parameter_is_final(index); }, reducer_.sends_beside_exchanges()};
    mine.sums = accumulate_gradient(runner_, data, slice_of_rank(request.global_batch, request.plan, control_.rank()),
                                    share.micro_batches, request.step,
                                    {.told = told,
                                     .split_on_out_of_memory = true,
                                     .ranks = &control_,
                                     .global_batch = request.global_batch,
                                     .ahead = {request.loader, request.epoch},
                                     .graphs = graphs_,
                                     .reads = replica_.loss.is_the_models() ? Reads::now : Reads::later});
  } catch (const StepAbandoned&) {
    // The rank that failed says so below.
  } catch (const MicroBatchDoesNotFit& error) {
    mine.discard = true;
    mine.sums.failed_size = error.size();
    mine.sums.out_of_memory_events = 1;
  } catch (...) {
    mine.failure = std::current_exception();
  }
  if (!mine.failure) mine.failure = request.failure;
  return mine;
}

void TrainingStep::reduce(Part& mine) {
  const Span span(replica_.timeline, "gradient", "wait");
  try {
    mine.computed = replica_.device.mark();
    reducer_.finish();
    mine.reduced = replica_.device.mark();
  } catch (...) {
    // A device that has failed refuses all that comes after: what it failed of is what is to be said.
    if (mine.failure) std::rethrow_exception(mine.failure);
    throw;
  }
}

StepTotals TrainingStep::agree(const Part& mine, const StepRequest& request) {
  const auto size = static_cast<std::size_t>(control_.size());
  const auto& touched = replica_.gradients.touched();
  std::vector<double> numbers = packed(
      {.weight = mine.sums.weight.coarse,
       .weight_rest = mine.sums.weight.fine,
       .stop_requested = request.stop_requested,
       .save_due = request.save_due,
       .failed = mine.failure != nullptr,
       .discard = mine.discard,
       .has_news = (graphs_ != nullptr && graphs_->has_news()) || has_host_draws_to_tell() || data_.has_complaints(),
       .out_of_memory_events = mine.sums.out_of_memory_events,
       .failed_size = mine.sums.failed_size,
       .step = request.step,
       .memory_peak_bytes = replica_.device.peak_bytes(),
       .touched = {touched.begin(), touched.end()}},
      static_cast<std::size_t>(control_.rank()), size);
  if (request.before_sums) request.before_sums();
  const Span span(replica_.timeline, "sums", "wait");
  control_.all_reduce(numbers.data(), numbers.size(), comm::ScalarType::float64, comm::ReduceOp::sum);
  const StepSums sums = unpacked(numbers, size);
  if (sums.failed) throw_failure(mine.failure, request);
  check_steps(sums.steps);
  touched_ = sums.touched;
  StepTotals totals = totals_of(sums);
  totals.reduced_bytes =
      reducer_.reduced_bytes() + (size > 1 ? static_cast<std::int64_t>(numbers.size() * sizeof(double)) : 0);
  return totals;
}

void TrainingStep::throw_failure(const std::exception_ptr& mine, const StepRequest& request) {
  if (request.on_failure) request.on_failure(mine != nullptr);
  onebatch::agree(control_, [&] {
    if (mine) std::rethrow_exception(mine);
  });
}

std::vector<NamedTensor> TrainingStep::changed_by_what_may_be_discarded() const {
  if (replica_.has_batch_statistics) return replica_.model->buffers();
  const MayBeCompiled* const owner = compiled_of(*replica_.model);
  return owner != nullptr ? owner->compiled->changes() : std::vector<NamedTensor>();
}

bool TrainingStep::is_reproducible() {
  ReproducibleSum* sum = replica_.gradients.reproducible();
  if (sum == nullptr) return true;
  std::vector<double> largest = sum->largest();
  control_.all_reduce(largest.data(), largest.size(), comm::ScalarType::float64, comm::ReduceOp::max);
  return sum->follow(largest);
}

void TrainingStep::divide_once(StepTotals& totals) {
  totals.loss_scale = replica_.loss_scale.scale();
  replica_.gradients.finish_sum(totals.skipped ? 1.0 : totals.weight * replica_.loss_scale.factor());
}

// Here a device's failure shows that it had in the step's kernels: the others hear of it, as of one in a micro-batch.
void TrainingStep::read_figures(Part& mine, StepTotals& totals, const StepRequest& request) {
  control_.set_activity(fmt::format("the optimizer of step {}", request.step + 1));
  StepFigures own;
  try {
    own = own_figures(mine, totals);
  } catch (...) {
    mine.failure = std::current_exception();
    own.failed = true;
  }
  const auto size = static_cast<std::size_t>(control_.size());
  std::vector<double> numbers = packed(own, static_cast<std::size_t>(control_.rank()), size);
  const Span span(replica_.timeline, "figures", "wait");
  control_.all_reduce(numbers.data(), numbers.size(), comm::ScalarType::float64, comm::ReduceOp::sum);
  const SummedFigures all = unpacked_figures(numbers, size);
  if (all.failed) throw_failure(mine.failure, request);
  totals.loss_sum = all.loss;
  totals.grad_norm = all.grad_norm;
  totals.overflowed = !std::isfinite(totals.grad_norm);
  totals.compute_seconds = all.compute_seconds;
  totals.data_wait_seconds = all.data_wait_seconds;
  totals.exposed_comm_seconds = std::ranges::min(all.comm_seconds);
  if (size > 1) totals.reduced_bytes += static_cast<std::int64_t>(numbers.size() * sizeof(double));
}

bool TrainingStep::can_be_late(const Part& mine, const StepTotals& totals) const {
  return control_.size() == 1 && !totals.skipped && mine.sums.unread && !replica_.loss.is_the_models() &&
         !clipping_.max_norm && !replica_.loss_scale.is_active() && replica_.gradients.reproducible() == nullptr &&
         replica_.optimizer.can_be_left_out();
}

void TrainingStep::leave_figures(Part& mine, StepTotals& totals) {
  divide_once(totals);
  late_.leave({std::move(mine.sums), mine.computed, mine.reduced}, gradient_norm(replica_.gradients.flat()));
}

void TrainingStep::settle(StepTotals& totals) {
  const Span span(replica_.timeline, "figures", "wait");
  const StepFigures figures = late_.take();
  totals.is_late = false;
  totals.loss_sum = figures.loss;
  totals.grad_norm = figures.grad_norm;
  totals.overflowed = !std::isfinite(figures.grad_norm);
  totals.compute_seconds = {figures.compute_seconds};
  totals.data_wait_seconds = {figures.data_wait_seconds};
  totals.exposed_comm_seconds = figures.comm_seconds;
}

void TrainingStep::forget_late(std::int64_t step) {
  buffers_before_of(step).restore();
  late_.forget();
}

StepFigures TrainingStep::own_figures(Part& mine, StepTotals& totals) {
  divide_once(totals);
  const at::Tensor& flat = replica_.gradients.flat();
  std::vector<at::Tensor> unread;
  if (mine.sums.unread) unread.push_back(mine.sums.unread->numbers);
  if (!totals.skipped) unread.push_back(gradient_norm(flat));
  std::vector<double> read;
  if (unread.empty())
    replica_.device.synchronize();  // times are read below
  else
    read = read_numbers(at::cat(unread));
  if (mine.sums.unread)
    onebatch::settle(mine.sums, std::span(read).first(static_cast<std::size_t>(unread.front().numel())));
  return {.loss = mine.sums.loss,
          .grad_norm = totals.skipped ? 0.0 : checked_norm(read.back(), flat),
          .compute_seconds = mine.sums.compute_seconds,
          .comm_seconds = mine.reduced->seconds_since(*mine.computed),
          .data_wait_seconds = mine.sums.data_wait_seconds};
}

}  // namespace onebatch
