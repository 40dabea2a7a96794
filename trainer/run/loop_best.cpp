// What hangs on validations: when they are due, which one was the best, and whether the run ends before its time.
#include "trainer/base/error.hpp"
#include "trainer/base/metrics.hpp"
#include "trainer/checkpoint/checkpoint_contents.hpp"
#include "trainer/data/subset.hpp"
#include "trainer/device/agreement.hpp"
#include "trainer/replica/replica_state.hpp"
#include "trainer/run/loop.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace onebatch {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t k_few_samples = 8;

std::string metric_names(const EvaluationResult& result) {
  std::string names = "\"loss\"";
  if (result.accuracy) names += ", \"accuracy\"";
  for (const MetricValue& metric : result.metrics) names += fmt::format(", \"{}\"", metric.name);
  return names;
}

[[noreturn]] void fail_without(const std::string& key, const std::string& metric, const EvaluationResult& result) {
  throw AgreedError(ExitCode::user_error,
                    fmt::format("{} = \"{}\": a validation of this run has no such number, but {}", key, metric,
                                metric_names(result)));
}

constexpr const char* k_early_key = "run.early_stopping.metric";
constexpr const char* k_best_key = "checkpoint.keep_best.metric";

}  // namespace

void TrainingLoop::say_where_it_begins() const {
  if (step_ >= total_steps_) {
    parts_.events.warn(
        fmt::format("the run is complete at step {}; raise run.epochs or run.max_steps to go on", step_));
  } else if (ended_early()) {
    parts_.events.warn(
        fmt::format("the run has ended early at step {}; raise run.early_stopping.patience to go on", step_));
  }
  for (const std::string& note : pace_->notes()) parts_.events.info(note);
  if (parts_.replica.optimizer.average() != nullptr && parts_.validation != nullptr)
    parts_.events.info(fmt::format("validation is of the averaged weights (optimizer.ema_decay = {:g})",
                                   parts_.configuration.optimizer.ema_decay));
}

bool TrainingLoop::validation_is_due() const {
  if (parts_.validation == nullptr) return false;
  const RunConfiguration& run = parts_.configuration.run;
  if (step_ == 0) return run.val_first && total_steps_ > 0;
  const bool epoch_ends = order_->position().consumed_in_epoch == 0;
  const bool by_steps = run.validate_every_steps > 0 && step_ % run.validate_every_steps == 0;
  return epoch_ends || by_steps || step_ == total_steps_;
}

// A run that was stopped where a validation was due has not made it: what a checkpoint remembers says so.
void TrainingLoop::go_on_validating(const std::optional<ValidationState>& saved, bool has_average) {
  const Configuration& c = parts_.configuration;
  validated_.step = saved ? saved->step : step_;
  if (saved) {
    validated_.early_stopping = go_on_watching(saved->early_stopping, c.run.early_stopping.watched);
    validated_.best = go_on_watching(saved->best, c.checkpoint.keep_best);
    watched_before_ = validated_.best == saved->best;
  }
  const bool averages = parts_.replica.optimizer.average() != nullptr;
  if (averages && !has_average)
    parts_.events.warn(
        fmt::format("the checkpoint has no averaged weights: the average begins with those of step {}", step_));
  if (!averages && has_average)
    parts_.events.warn("the checkpoint's averaged weights are left out, since optimizer.ema_decay is 0");
}

// Of a folder that lacks the checkpoint of the best validation, as that of another run does, another one is the best:
// that of the validation that an earlier start has ended with, of which the mark alone knows, or one that is to come.
void TrainingLoop::settle_best() {
  const WatchedMetric& watched = parts_.configuration.checkpoint.keep_best;
  if (watched.metric.empty() || parts_.options.run_dir.empty()) return;
  const fs::path checkpoints = parts_.options.run_dir / "checkpoints";
  WatchState& best = validated_.best;
  const bool is_made_again = validation_is_due() && validated_.step < step_;
  const bool may_be_marked = is_own_ && watched_before_ && !is_made_again;
  struct {
    std::int64_t step = -1;
    double value = 0.0;
  } found;  // by rank 0
  agree_on_rank_0(parts_.control, [&] {
    const auto is_there = [&](std::int64_t step) {
      return step <= step_ && fs::exists(checkpoints / fmt::format("step-{}", step) / k_state_file);
    };
    const std::optional<BestMark> mark = read_mark(checkpoints);
    const bool is_later = mark && (!best.best || mark->step > best.best_step);
    if (may_be_marked && is_later && mark->metric == best.metric && is_there(mark->step))
      found = {mark->step, mark->value};
    else if (best.best && is_there(best.best_step))
      found = {best.best_step, *best.best};
    else {
      if (mark && mark->metric != watched.metric)
        parts_.events.warn(
            fmt::format("{} has had the best {}, and is kept for it no longer, since "
                        "checkpoint.keep_best.metric = \"{}\": copy it to where it is to stay",
                        (checkpoints / fmt::format("step-{}", mark->step)).string(), mark->metric, watched.metric));
      return unmark_best(checkpoints);
    }
    const BestMark right{found.step, best.metric, found.value};
    if (mark != right) mark_best(checkpoints, right);
  });
  parts_.control.broadcast(&found, sizeof(found), 0);
  if (found.step < 0)
    best = begin_watching(watched);
  else if (!best.best || best.best_step != found.step)
    best = {best.metric, best.greater_is_better, found.value, found.step, 0};
}

// Before anything is trained, planned or written: which numbers a validation has, and whether it can have those of
// run.metrics, shows in one of a few samples. What it draws is drawn again.
void TrainingLoop::check_watched() {
  const Configuration& c = parts_.configuration;
  if (parts_.validation == nullptr) return;
  EvaluationRequest request{.micro_batch_size = k_few_samples};
  request.metrics = chosen_metrics(c, *parts_.validation, parts_.replica.loss.num_classes());
  const bool asks = request.metrics.from == MetricsFrom::configuration && !request.metrics.metrics.empty();
  if (!asks && (c.run.early_stopping.watched.metric + c.checkpoint.keep_best.metric).empty()) return;
  std::vector<std::int64_t> few(static_cast<std::size_t>(std::min(k_few_samples, parts_.validation->size())));
  std::iota(few.begin(), few.end(), 0);
  const std::shared_ptr<const Dataset> whole(std::shared_ptr<void>(), parts_.validation);  // which outlives it
  const GeneratorState generators(parts_.replica);
  const EvaluationResult result =
      evaluate(request, parts_.replica, Subset(whole, few, SampleChanges::none), parts_.control);
  generators.restore(parts_.replica);
  const auto check = [&](const char* key, const std::string& metric) {
    const bool may_come = metric == "accuracy" && parts_.replica.loss.is_classification();
    if (!metric.empty() && !may_come && !metric_named(result, metric)) fail_without(key, metric, result);
  };
  check(k_early_key, c.run.early_stopping.watched.metric);
  check(k_best_key, c.checkpoint.keep_best.metric);
}

// Rank 0's: replicas are one model (Note [Replicas are one model]).
double TrainingLoop::watched_value(const std::string& key, const WatchState& state) {
  const std::optional<double> found = metric_named(*validation_, state.metric);
  if (!found && state.metric != "accuracy") fail_without(key, state.metric, *validation_);
  double value = found.value_or(NAN);
  parts_.control.broadcast(&value, sizeof(value), 0);
  return value;
}

void TrainingLoop::judge() {
  if (looks_back_ || validated_.step >= step_) return;  // of a complete run that was started again
  validated_.step = step_;
  WatchState& early = validated_.early_stopping;
  if (!early.metric.empty())
    watch(early, watched_value(k_early_key, early), step_, parts_.configuration.run.early_stopping.min_delta);
  WatchState& best = validated_.best;
  if (best.metric.empty()) return;
  const double value = watched_value(k_best_key, best);
  if (!watch(best, value, step_) || parts_.options.run_dir.empty()) return;
  const BestMark mark{step_, best.metric, value};
  if (saved_step_ == step_)
    saver_.keep_as_best(mark);
  else
    save(mark);
}

bool TrainingLoop::ended_early() const {
  const EarlyStopping& early = parts_.configuration.run.early_stopping;
  return !early.watched.metric.empty() && validated_.early_stopping.without >= early.patience;
}

void TrainingLoop::say_what_was_best() const {
  if (stopping_ || looks_back_) return;
  const WatchState& early = validated_.early_stopping;
  if (ended_early() && early.best)
    parts_.events.info(fmt::format(
        "ended early after step {}: {} was {:.6g} after step {}, and no better in {} {} since", step_, early.metric,
        *early.best, early.best_step, early.without, early.without == 1 ? "validation" : "validations"));
  else if (ended_early())
    parts_.events.info(fmt::format("ended early after step {}: {} was no finite number in {} validations", step_,
                                   early.metric, early.without));
  const WatchState& best = validated_.best;
  if (best.best && !parts_.options.run_dir.empty())
    parts_.events.info(fmt::format("the best {} was {:.6g}, after step {}: {}", best.metric, *best.best, best.best_step,
                                   (parts_.options.run_dir / "checkpoints" / "best").string()));
}

}  // namespace onebatch
