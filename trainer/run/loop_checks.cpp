// What is looked at between steps: whether replicas are alike, and how the model does on the validation data.
#include "trainer/batch_norm/running_statistics.hpp"
#include "trainer/replica/replica_check.hpp"
#include "trainer/run/loop.hpp"
#include "trainer/step/evaluation.hpp"

#include <fmt/format.h>

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

void TrainingLoop::validate() {
  if (parts_.validation == nullptr) return;
  const Span span(parts_.replica.timeline, "validation", "between steps");
  parts_.control.set_activity(fmt::format("validation after step {}", step_));
  std::int64_t micro_batch_size = EvaluationRequest{}.micro_batch_size;
  const double weight = share();
  if (weight > 0.0)
    micro_batch_size = parts_.plans.book.epoch_plan()
                           .full.ranks.at(static_cast<std::size_t>(parts_.control.rank()))
                           .micro_batches.back()
                           .size;
  check_other_buffers(parts_.replica, parts_.control);
  const AveragedStatistics averaged(parts_.replica.own_statistics(), weight, parts_.control);
  const ChosenMetrics metrics =
      chosen_metrics(parts_.configuration, *parts_.validation, parts_.replica.loss.num_classes());
  validation_ = evaluate({micro_batch_size, weight, metrics}, parts_.replica, *parts_.validation, parts_.control);
  parts_.events.send(event::Validated{order_->position().epoch, *validation_});
}

}  // namespace onebatch
