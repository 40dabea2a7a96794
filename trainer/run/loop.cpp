#include "trainer/run/loop.hpp"

#include "comm/error.hpp"
#include "comm/long_work.hpp"
#include "comm/statistics.hpp"
#include "trainer/base/error.hpp"
#include "trainer/base/fault_point.hpp"
#include "trainer/checkpoint/run_checkpoint.hpp"
#include "trainer/device/agreement.hpp"
#include "trainer/io/lies_in.hpp"
#include "trainer/replica/replica_check.hpp"
#include "trainer/run/graphs_of_run.hpp"
#include "trainer/run/identity.hpp"
#include "trainer/run/not_finite.hpp"
#include "trainer/settings/identity.hpp"
#include "trainer/step/graph_step.hpp"
#include "trainer/verify/at_start.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <numeric>

namespace onebatch {
namespace {

using Clock = std::chrono::steady_clock;

// Of values of which there may be none.
double quantile(std::vector<double> values, double q) {
  return values.empty() ? std::numeric_limits<double>::quiet_NaN() : comm::quantile_between(std::move(values), q);
}

// That the steps follow: of less data than a global batch each step takes all there is.
const Plan& followed_plan(const EpochPlan& plan, std::int64_t dataset_size) {
  return plan.last && dataset_size < plan.full.global_batch_size ? *plan.last : plan.full;
}

// By whatever path, and also a copy that somebody has made in the run's folder.
bool is_its_own(const std::filesystem::path& checkpoint, const std::filesystem::path& run_dir) {
  std::error_code error;  // there may be no such folder
  if (checkpoint.empty() || run_dir.empty()) return false;
  return std::filesystem::equivalent(checkpoint.parent_path(), run_dir / "checkpoints", error) ||
         lies_in(checkpoint, run_dir);
}

bool is_newest(const std::filesystem::path& checkpoint, const std::filesystem::path& run_dir) {
  std::error_code error;
  return std::filesystem::equivalent(checkpoint, run_dir / "checkpoints" / "latest", error);
}

std::string against_not_finite(const PrecisionConfiguration& precision) {
  if (!uses_float16(precision)) return "a smaller optimizer.lr, schedule.warmup_steps or optimizer.max_grad_norm";
  if (precision.loss_scale) return "precision.loss_scale = \"dynamic\", or a smaller number";
  return precision.master_weights ? "precision.compute = \"bfloat16\"" : "precision.master_weights = true";
}

}  // namespace

TrainingLoop::TrainingLoop(const LoopParts& parts)
    : parts_(parts),
      devices_(comm::all_gather_text(parts.control, parts.replica.device.name())),
      saver_(parts.options.run_dir / "checkpoints", parts.configuration.checkpoint, parts.control, parts.events) {}

TrainResult TrainingLoop::run() {
  const Configuration& c = parts_.configuration;
  validated_ = {-1, begin_watching(c.run.early_stopping.watched), begin_watching(c.checkpoint.keep_best)};
  resume();
  if (!order_) order_ = order_from({});
  pace_.emplace(c, *order_, step_);
  total_steps_ = pace_->total_steps();
  say_where_it_begins();
  const bool is_at_an_older_one = settle_looking_back();
  if (goes_on()) check_watched();
  // From here on the folder changes: measuring for a plan writes there.
  agree_on_rank_0(parts_.control, [&] {
    // A path may be that of an older one, from which nothing is left to do.
    if (goes_on() || c.checkpoint.resume == ResumeMode::automatic) set_newer_aside();
    if (goes_on() || !is_own_) parts_.options.accepted();
    save_class_names();
  });
  // At its end a mark that was left half made is made right.
  if (!looks_back_ || (!is_at_an_older_one && watched_before_)) settle_best();
  if (goes_on()) {
    const EpochPlan& plan = parts_.plans.book.epoch_plan();
    const TrainingData data = training_data(order_->position().epoch);
    check_at_start({{c, data, parts_.replica, parts_.runner.apart() != nullptr}, parts_.control, parts_.events, plan},
                   SampleOrder(*order_).next(), step_);
  }
  training_step_.emplace(parts_.runner, parts_.data, parts_.reducer, parts_.control, clipping_of(c.optimizer),
                         parts_.graphs);
  begin_loading();
  const EpochPlan* plan = parts_.plans.book.current();
  const auto predicted =
      plan != nullptr ? std::optional(followed_plan(*plan, parts_.data.size()).predicted_step_seconds) : std::nullopt;
  parts_.events.send(event::TrainingBegins{step_, total_steps_, predicted, looks_back_});
  watch_for_losses();
  try {
    if (validation_is_due() && validated_.step < step_) validate();
    while (goes_on()) {
      if (run_step()) after_step();
    }
    if (!validation_ && !stopping_) validate();
    // Another run's, after which nothing was left to do, is the last of this one too.
    if (!resumed_from_.empty() && !is_own_) save();
    saver_.finish();
    count_skipped();
    say_what_was_best();
  } catch (const comm::CommError&) {
    if (survivors_) survivors_->lost();
    throw;
  }
  loading_.reset();
  survivors_.reset();
  fault_point("end", step_);
  return result();
}

// Whether it is at a checkpoint of its own that is not its last.
bool TrainingLoop::settle_looking_back() {
  const bool may_be_older = parts_.configuration.checkpoint.resume == ResumeMode::path && is_own_;
  std::array<std::int64_t, 2> found = {0, 0};  // by rank 0: at an older one; of a complete run
  agree_on_rank_0(parts_.control, [&] {
    check_room();
    found = {may_be_older && !is_newest(resumed_from_, parts_.options.run_dir) ? 1 : 0,
             is_own_ && parts_.options.was_complete ? 1 : 0};
  });
  parts_.control.broadcast(found.data(), sizeof(found), 0);
  looks_back_ = !goes_on() && (found[0] != 0 || found[1] != 0);
  return found[0] != 0;
}

TrainingData TrainingLoop::training_data(std::int64_t epoch) const {
  return {parts_.data, parts_.replica.augment, {parts_.configuration.run.seed, epoch}};
}

SampleOrder TrainingLoop::order_from(const OrderPosition& start) const {
  const Configuration& c = parts_.configuration;
  return {c.run.seed, parts_.data.size(), c.batch.global_batch_size, c.batch.last_batch, start, parts_.drawing};
}

void TrainingLoop::note_new_plan(event::Replanned::Cause cause) {
  const double predicted = followed_plan(*parts_.plans.book.current(), parts_.data.size()).predicted_step_seconds;
  parts_.events.send(event::Replanned{cause, step_, ++replans_, predicted});
}

// Where the gradient was not finite. A checkpoint before is what may be gone on from.
std::string TrainingLoop::what_is_kept(bool good) const {
  if (step_ == 0 || parts_.options.run_dir.empty()) return "";
  return good ? ", saved; " + an_earlier_checkpoint() + " goes on from one before"
              : ", not finite, and not saved; --resume goes on from the newest before, " + an_earlier_checkpoint() +
                    " from another";
}

std::string TrainingLoop::an_earlier_checkpoint() const {
  return "checkpoint.resume = \"" + (parts_.options.run_dir / "checkpoints/step-N").string() + "\"";
}

// The weights are those of the last step, and are saved where they are numbers. What was saved before stays too: a step
// that has gone far off shows in the next one's gradient alone.
void TrainingLoop::stop_at_not_finite(const std::vector<std::int64_t>& batch, const OrderPosition& before) {
  const Plan& plan = parts_.plans.book.plan_of(static_cast<std::int64_t>(batch.size()));
  const int rank = parts_.control.rank();
  const std::string where =
      first_not_finite(parts_.replica, training_data(before.epoch), slice_of_rank(batch, plan, rank),
                       plan.ranks.at(static_cast<std::size_t>(rank)).micro_batches, step_, parts_.control);
  order_ = order_from(before);
  const bool good = has_finite_weights(parts_.replica, parts_.control);
  saver_.let_remove(false);
  if (step_ > 0 && good) save();
  saver_.finish();
  const LossScale& scale = parts_.replica.loss_scale;
  throw AgreedError(
      ExitCode::failed,
      fmt::format("step {}: the gradient is not finite (NaN or infinity){}: {}. Nothing was updated; the weights are "
                  "those of step {}{}. Try {}, and look at that batch's data",
                  step_ + 1, scale.is_active() ? " " + scale.tried_text() : "", where, step_, what_is_kept(good),
                  against_not_finite(parts_.configuration.precision)));
}

// A finite gradient may make weights that are not. What was saved before is all that there is to go on from.
void TrainingLoop::stop_at_weights_not_finite() {
  saver_.finish();
  throw AgreedError(ExitCode::failed,
                    fmt::format("the weights that step {} has made are not finite (NaN or infinity), and not saved; "
                                "--resume goes on from the newest before, {} from another. Try {}",
                                step_, an_earlier_checkpoint(), against_not_finite(parts_.configuration.precision)));
}

bool TrainingLoop::is_step_of_every(std::int64_t steps) const {
  return steps > 0 && step_ % steps == 0;
}

bool TrainingLoop::is_saved() const {
  return step_ == total_steps_ || stopping_ || save_due_ ||
         is_step_of_every(parts_.configuration.checkpoint.every_steps);
}

void TrainingLoop::after_step() {
  validation_.reset();
  if (is_step_of_every(parts_.configuration.comm.check_replicas_every_steps)) check_replicas();
  if (step_seconds_.size() == 1 && !late_) check_other_buffers(parts_.replica, parts_.control);
  if (step_ == total_steps_) stopping_ = false;  // nothing is left to go on with
  const bool validates = validation_is_due() && !stopping_;
  // What is saved of a run that this validation may end has to know of it.
  const EarlyStopping& early = parts_.configuration.run.early_stopping;
  const bool may_end = validates && !early.watched.metric.empty() && step_ < total_steps_ &&
                       validated_.early_stopping.without + 1 >= early.patience;
  if (is_saved() && !may_end) save();
  if (validates) validate();
  if (is_saved() || ended_early()) save();
}

bool TrainingLoop::has_plan() const {
  return parts_.plans.book.current() != nullptr || reuses_plan_;
}

const Plan& TrainingLoop::plan_of_steps() const {
  return followed_plan(parts_.plans.book.epoch_plan(), parts_.data.size());
}

// Of this rank, in the plan that the running statistics are of. 0 for all where there is none, since the run was
// complete.
double TrainingLoop::share() const {
  const std::vector<std::int64_t> shares = shares_.empty() && has_plan() ? shares_of(plan_of_steps()) : shares_;
  return shares.empty() ? 0.0 : static_cast<double>(shares.at(static_cast<std::size_t>(parts_.control.rank())));
}

// By rank 0's clock.
bool TrainingLoop::is_time_to_save() const {
  const double minutes = parts_.configuration.checkpoint.every_minutes;
  return minutes > 0.0 && parts_.control.rank() == 0 &&
         Clock::now() - saved_ >= std::chrono::duration<double, std::ratio<60>>(minutes);
}

void TrainingLoop::save(const std::optional<BestMark>& mark) {
  if (saved_step_ == step_ || parts_.options.run_dir.empty()) return;
  const Span span(parts_.replica.timeline, "checkpoint", "between steps");
  const comm::LongWork saving(parts_.control, fmt::format("the checkpoint of step {}", step_));
  check_other_buffers(parts_.replica, parts_.control);
  if (!trains_on_numbers(parts_.replica, parts_.control)) stop_at_weights_not_finite();
  saver_.save(run_state(), parts_.replica, share(), mark);
  saved_step_ = step_;
  saved_ = Clock::now();
}

void TrainingLoop::resume() {
  const Configuration& c = parts_.configuration;
  if (c.checkpoint.resume == ResumeMode::never) return;
  const std::filesystem::path path = c.checkpoint.resume == ResumeMode::path ? c.checkpoint.resume_path : "";
  const auto checkpoint =
      choose_checkpoint(parts_.options.run_dir / "checkpoints", path, parts_.events, parts_.control);
  if (checkpoint.empty()) return begin_again();
  resumed_from_ = checkpoint;
  std::int64_t own = is_its_own(checkpoint, parts_.options.run_dir) ? 1 : 0;
  parts_.control.broadcast(&own, sizeof(own), 0);
  is_own_ = own != 0;
  const RunState saved = load_run_state(checkpoint, parts_.control);
  refuse_another_run(saved, checkpoint.string());
  const bool has_average = load_replica(checkpoint, parts_.replica, parts_.control);
  if (parts_.runner.apart() != nullptr) parts_.runner.apart()->forget();
  if (parts_.graphs != nullptr) parts_.graphs->release();
  if (saved.loss_scale > 0.0) parts_.replica.loss_scale.resume(saved.loss_scale, saved.loss_scale_steps);
  if (ReproducibleSum* sum = parts_.replica.gradients.reproducible(); sum != nullptr && !saved.bases.empty())
    sum->set_bases(saved.bases);
  step_ = saved.step;
  if (is_own_) saved_step_ = saved.step;
  order_ = order_from(saved.position);
  parts_.events.info(fmt::format("resumed from {}: step {}, {} samples consumed", checkpoint.string(), step_,
                                 saved.position.consumed_samples));
  go_on_validating(saved.validations, has_average);
  if (saved.world_size == parts_.control.size()) shares_ = saved.shares;
  if (!saved.plan) return;
  // Earlier versions saved no shares: the plan's.
  if (saved.shares.empty() && saved.world_size == parts_.control.size() &&
      std::ssize(saved.plan->full.ranks) == saved.world_size)
    shares_ = shares_of(followed_plan(*saved.plan, parts_.data.size()));
  reuse_plan(*saved.plan, saved.devices);
}

// So that the next start goes on with this course, and not with one that was left.
void TrainingLoop::set_newer_aside() {
  if (!is_own_) return;
  const std::filesystem::path checkpoints = parts_.options.run_dir / "checkpoints";
  const auto aside = make_newest(checkpoints, placed_among(checkpoints, resumed_from_, step_));
  if (!aside.empty())
    parts_.events.info(fmt::format("{} in {}, of steps after the one that it goes on from, {} set aside",
                                   fmt::join(aside, ", "), checkpoints.string(), aside.size() == 1 ? "is" : "are"));
}

void TrainingLoop::refuse_another_run(const RunState& saved, const std::string& checkpoint) const {
  const std::string differences = identity_differences(
      saved.identity, run_identity(parts_.configuration, parts_.data, parts_.given_samples, *parts_.replica.model));
  if (differences.empty()) return;
  const bool other_data = differences.find(k_data_digest) != std::string::npos;
  throw AgreedError(
      ExitCode::user_error,
      checkpoint + " is of another run:" + differences +
          (other_data ? "\nthe training data's files hold something else than they did, or the configuration "
                        "names other tensors of them"
                      : "") +
          "\nbegin a new run without --resume, or write another run.name" +
          (other_data ? "; model.weights = \"" + checkpoint +
                            "/model.safetensors\" lets it begin with what this one has learnt"
                      : ""));
}

TrainResult TrainingLoop::result() const {
  TrainResult result;
  result.steps = step_;
  result.consumed_samples = order_->position().consumed_samples;
  result.train_loss = last_loss_;
  result.validation = validation_;
  const double total_seconds = std::accumulate(step_seconds_.begin(), step_seconds_.end(), 0.0);
  if (total_seconds > 0.0) {
    result.samples_per_second = static_cast<double>(timed_samples_) / total_seconds;
    result.predicted_step_seconds =
        followed_plan(parts_.plans.book.epoch_plan(), parts_.data.size()).predicted_step_seconds;
  }
  result.data_wait_seconds = data_wait_seconds_;
  result.step_seconds = {quantile(step_seconds_, 0.5), quantile(step_seconds_, 0.95)};
  result.reduced_bytes_per_step = reduced_bytes_;
  result.out_of_memory_events = out_of_memory_events_;
  result.replans = replans_;
  result.checkpoints_saved = saver_.totals().saved;
  result.checkpoint_waits = saver_.totals().waits;
  result.checkpoint_seconds = saver_.totals().held_up_seconds;
  result.mended_replicas = mended_replicas_;
  result.run_dir = parts_.options.run_dir.string();
  result.stopped_by_signal = stopping_;
  result.stopped_early = ended_early() && !stopping_;
  return result;
}

}  // namespace onebatch
