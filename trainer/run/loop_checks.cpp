// What is looked at between steps: whether replicas are alike, and how the model does on the validation data.
#include "trainer/batch_norm/running_statistics.hpp"
#include "trainer/replica/replica_check.hpp"
#include "trainer/run/loop.hpp"
#include "trainer/step/evaluation.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace onebatch {

void TrainingLoop::check_replicas() {
  const auto difference = mend_replicas(parts_.replica, parts_.control,
                                        [this] { begin_to_change("replicas that differed were being mended"); });
  if (!difference) return;
  if (survivors_) survivors_->end_of_use();
  ++mended_replicas_;
  std::string ranks;
  for (const int rank : difference->ranks) ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", rank);
  parts_.events.fallback("the same parameters on every rank",
                         fmt::format("rank 0's sent to all: after step {} those of rank {} differed, first in {}",
                                     step_, ranks, difference->parameter));
}

EvaluationRequest TrainingLoop::evaluation_request() const {
  EvaluationRequest request{.share = share()};
  if (has_plan()) {
    const auto rank = static_cast<std::size_t>(parts_.control.rank());
    const std::vector<MicroBatchRun>& own = parts_.plans.book.epoch_plan().full.ranks.at(rank).micro_batches;
    if (!own.empty()) request.micro_batch_size = own.back().size;
  }
  request.metrics = chosen_metrics(parts_.configuration, *parts_.validation, parts_.replica.loss.num_classes());
  return request;
}

// Also where this process has made none.
std::optional<double> TrainingLoop::lr_of_last_step() const {
  return last_lr_ || step_ == 0 ? last_lr_ : pace_->learning_rate(step_ - 1);
}

// Of the averaged weights where there are any, with the running statistics as training has them.
void TrainingLoop::validate() {
  if (parts_.validation == nullptr) return;
  const Span span(parts_.replica.timeline, "validation", "between steps");
  const std::string what = fmt::format("validation after step {}", step_);
  parts_.control.set_activity(what);
  check_other_buffers(parts_.replica, parts_.control);
  const bool has_average = parts_.replica.optimizer.average() != nullptr;
  EvaluationRequest request = evaluation_request();
  request.what = what;
  if (has_average) begin_to_change("the averaged weights were being validated");
  {
    const AveragedWeights weights(parts_.replica.optimizer);
    const AveragedStatistics statistics(parts_.replica.own_statistics(), request.share, parts_.control);
    validation_ = evaluate(request, parts_.replica, *parts_.validation, parts_.control);
  }
  if (std::isnan(validation_->loss) && !std::exchange(told_of_no_loss_, true))
    parts_.events.warn(what +
                       ": the loss is no number: no sample of data.validation counts (loss.ignore_index, weights of "
                       "0, files that were skipped), or the model's outputs are no numbers");
  if (has_average && survivors_) survivors_->end_of_use();
  const OrderPosition& position = order_->position();
  parts_.events.send(event::Validated{.epoch = position.epoch,
                                      .result = *validation_,
                                      .step = step_,
                                      .consumed_samples = position.consumed_samples,
                                      .lr = lr_of_last_step(),
                                      .within_epoch = position.consumed_in_epoch > 0});
  judge();
}

}  // namespace onebatch
