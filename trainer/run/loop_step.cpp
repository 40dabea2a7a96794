// A step of the run: which samples, how it is made to fit, and what is said of it, which may be a step later.
#include "trainer/base/error.hpp"
#include "trainer/base/fault_point.hpp"
#include "trainer/run/graphs_of_run.hpp"
#include "trainer/run/loop.hpp"
#include "trainer/step/accumulation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace onebatch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int k_most_attempts = 20;  // of one step

}  // namespace

void TrainingLoop::begin_loading() {
  loading_.emplace(DataLoading::Parts{parts_.configuration, parts_.replica, parts_.readers_data, parts_.plans.book,
                                      parts_.control, parts_.events, parts_.world.node_local_size()});
  parts_.plans.tables.set_stand_still(
      [this] { return std::make_shared<Loader::Paused>(loading_ ? loading_->loader() : nullptr); });
}

bool TrainingLoop::run_step() {
  std::optional<DoneStep> done;
  try {
    done = make_step();
  } catch (...) {
    if (late_) try_to_settle();  // what has failed now is what is to be said
    throw;
  }
  if (late_ && !done->totals.is_late) late_->end = done->start;
  if (late_ && !settle(*std::exchange(late_, std::nullopt))) return false;
  if (done->totals.is_late && !is_looked_at()) {
    late_ = std::move(done);
    return true;
  }
  return settle(*std::move(done));
}

void TrainingLoop::try_to_settle() {
  try {
    settle(*std::exchange(late_, std::nullopt));
  } catch (const std::exception& error) {
    parts_.events.info(fmt::format("the last line of metrics.jsonl is missing: {}", error.what()));
  }
}

TrainingLoop::DoneStep TrainingLoop::make_step() {
  DoneStep done{.before = order_->position()};
  const std::int64_t samples = order_->next_size();
  if (!parts_.plans.book.has_plan_of(samples)) measuring([&] { parts_.plans.book.plan_of(samples); });
  loading_->announce(*order_, total_steps_ - step_);
  done.batch = order_->next();
  last_lr_ = pace_->learning_rate(step_);
  parts_.replica.device.begin_step(step_ + 1);
  done.start = Clock::now();
  done.totals = run_until_it_fits(done.batch, done.before.epoch, *last_lr_);
  if (!done.totals.is_late) done.end = Clock::now();
  if (done.totals.has_news) {
    say_skipped(parts_.data);
    say_news(parts_.graphs, parts_.configuration.run.cuda_graphs, parts_.control, parts_.events);
  }
  if (!done.totals.can_go_on) stop_at_not_finite(done.batch, done.before);
  saver_.let_remove(!done.totals.overflowed);  // weights that have gone far off may be all that is saved meanwhile
  ++step_;
  if (survivors_)
    survivors_->end_step(progress(),
                         done.totals.overflowed ? SurvivorSave::StepEnd::restored : SurvivorSave::StepEnd::updated);
  stopping_ = done.totals.stop_requested;
  save_due_ = done.totals.save_due;
  reduced_bytes_ = done.totals.reduced_bytes;
  done.record = record_of_position();
  // Done all the same: the last step under its plan.
  if (done.totals.out_of_memory_events > 0 && step_ < total_steps_ && !stopping_)
    measuring([&] {
      if (parts_.plans.book.lower_limits(done.totals.failed_sizes))
        note_new_plan(event::Replanned::Cause::out_of_memory);
    });
  return done;
}

bool TrainingLoop::settle(DoneStep done) {
  if (done.totals.is_late) {
    training_step_->settle(done.totals);
    if (done.totals.overflowed) {
      do_again(done);
      return false;
    }
  }
  // The time of a late one's is from the end of the one before.
  const auto end = done.end.value_or(Clock::now());
  const double seconds = std::chrono::duration<double>(end - std::max(done.start, end_of_last_)).count();
  end_of_last_ = end;
  say_if_skipped(done);
  last_loss_ =
      done.totals.weight > 0.0 ? done.totals.loss_sum / done.totals.weight : std::numeric_limits<double>::quiet_NaN();
  loading_->note(done.totals, seconds, done.record.step);
  data_wait_seconds_ += std::ranges::max(done.totals.data_wait_seconds);
  step_seconds_.push_back(seconds);
  const auto samples = static_cast<std::int64_t>(done.batch.size());
  timed_samples_ += samples;
  complete(done, seconds);
  if (samples == parts_.configuration.batch.global_batch_size)
    measuring([&] {
      if (parts_.plans.drift.follow(done.totals, done.record.step)) note_new_plan(event::Replanned::Cause::drift);
    });
  if (survivors_ && std::exchange(told_replans_, replans_) != replans_)
    survivors_->note_plan(parts_.plans.book.epoch_plan());
  parts_.events.send(event::StepDone{std::move(done.record), origins_of(parts_.data, done.batch)});
  return true;
}

// Nothing has changed since it began. This time its figures are read at once, and found to be what they are.
void TrainingLoop::do_again(const DoneStep& done) {
  late_.reset();
  step_ = done.record.step - 1;
  training_step_->forget_late(step_);
  order_ = order_from(done.before);
  reads_at_once_ = step_;
  stopping_ = save_due_ = false;
  loading_.reset();
  begin_loading();
}

// By after_step(), which comes next.
bool TrainingLoop::is_looked_at() const {
  return is_saved() || is_step_of_every(parts_.configuration.comm.check_replicas_every_steps) || validation_is_due();
}

// The first says how things are, and memory, a graph's too, has been taken when it ends.
bool TrainingLoop::may_be_late() const {
  const bool reads_later = !parts_.replica.device.device().is_cpu() || fault_point("late", step_) != 0;
  return reads_later && !step_seconds_.empty() && reads_at_once_ != step_ && !parts_.draws_unkeyed;
}

void TrainingLoop::say_if_skipped(const DoneStep& done) const {
  const StepTotals& totals = done.totals;
  if (totals.skipped)
    parts_.events.warn(fmt::format(
        "step {} was skipped: the weight of its global batch is zero (every label is ignored)", done.record.step));
  if (totals.overflowed)
    parts_.events.info(
        fmt::format("step {} was skipped: its gradient overflows float16 at the loss scale {:g}; the next is {:g}",
                    done.record.step, totals.loss_scale, parts_.replica.loss_scale.scale()));
}

// Of the step that has just been made.
StepRecord TrainingLoop::record_of_position() const {
  StepRecord record;
  record.plan = replans_;
  record.step = step_;
  record.epoch = order_->position().epoch;
  record.consumed_samples = order_->position().consumed_samples;
  record.lr = last_lr_.value_or(0.0);
  record.reduced_bytes = reduced_bytes_;
  return record;
}

void TrainingLoop::complete(DoneStep& done, double seconds) const {
  StepRecord& record = done.record;
  const StepTotals& totals = done.totals;
  record.loss = last_loss_;
  record.grad_norm = totals.grad_norm;
  if (parts_.replica.loss_scale.is_active()) record.loss_scale = totals.loss_scale;
  record.skipped = totals.skipped || totals.overflowed;
  record.step_seconds = seconds;
  record.compute_seconds = totals.compute_seconds;
  record.data_wait_seconds = totals.data_wait_seconds;
  record.exposed_comm_seconds = totals.exposed_comm_seconds;
  record.samples_per_second = static_cast<double>(done.batch.size()) / seconds;
  record.memory_peak_bytes = totals.memory_peak_bytes;
}

// Out of memory in a step: a rank whose model allows it has split the micro-batch and is done, and the next step has a
// new plan; else all do the step again, under a new plan.
StepTotals TrainingLoop::run_until_it_fits(const std::vector<std::int64_t>& batch, std::int64_t epoch, double lr) {
  const auto* stop = parts_.options.stop_requested;
  for (int attempt = 1;; ++attempt) {
    hand_on_statistics();
    const StepTotals totals =
        training_step_->run({.global_batch = batch,
                             .epoch = epoch,
                             .plan = parts_.plans.book.plan_of(static_cast<std::int64_t>(batch.size())),
                             .lr = lr,
                             .step = step_ + fault_point("step", step_),
                             .stop_requested = stop != nullptr && stop->load() != 0,
                             .save_due = is_time_to_save(),
                             .may_be_late = may_be_late(),
                             .loader = loading_->loader(),
                             .failure = saver_.look(),
                             .before_sums =
                                 [this] {
                                   if (survivors_) survivors_->keep_own();
                                 },
                             .before_update = [this] { begin_to_change("its update was not done"); },
                             .on_failure =
                                 [this](bool mine) {
                                   if (!survivors_) return;
                                   mine ? survivors_->this_rank_failed() : survivors_->another_rank_failed();
                                 }});
    if (!totals.discarded) shares_ = shares_of(plan_of_steps());
    if (totals.out_of_memory_events == 0) return totals;
    note_out_of_memory(totals);
    if (!totals.discarded) return totals;
    const bool as_planned = std::ranges::count(totals.failed_sizes, MicroBatchDoesNotFit::k_beside_graphs) ==
                            std::ssize(totals.failed_sizes);
    if (as_planned && attempt < k_most_attempts) continue;  // without graphs it may fit
    bool replanned = false;
    measuring([&] {
      replanned = attempt < k_most_attempts && parts_.plans.book.lower_limits(totals.failed_sizes);
      if (replanned) parts_.plans.book.plan_of(static_cast<std::int64_t>(batch.size()));
    });
    if (replanned) note_new_plan(event::Replanned::Cause::out_of_memory);
    if (!replanned)
      throw AgreedError(ExitCode::does_not_fit,
                        fmt::format("step {} runs out of memory, and its micro-batches cannot be made smaller: leave "
                                    "batch.gradient_accumulation_steps to \"auto\", or raise probe.margin",
                                    step_ + 1));
  }
}

void TrainingLoop::note_out_of_memory(const StepTotals& totals) {
  out_of_memory_events_ += totals.out_of_memory_events;
  for (std::size_t rank = 0; rank < totals.failed_sizes.size(); ++rank) {
    if (totals.failed_sizes[rank] > 0)
      parts_.events.send(event::OutOfMemory{step_ + 1, static_cast<int>(rank), totals.failed_sizes[rank]});
  }
}

}  // namespace onebatch
