#include "trainer/run/plan_book.hpp"

#include "trainer/base/error.hpp"
#include "trainer/device/agreement.hpp"
#include "trainer/documents/documents.hpp"
#include "trainer/plan/plan_check.hpp"
#include "trainer/plan/plan_notes.hpp"
#include "trainer/plan/plan_pattern.hpp"
#include "trainer/replica/replica_state.hpp"
#include "trainer/step/graph_step.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace onebatch {

const ClusterProfile& PlanBook::profile() {
  if (tables_.measured()) return tables_.profile();
  tables_.measure(plan_.has_value());
  if (plan_) memory_.keep_as_planned(plan_->full);
  return tables_.profile();
}

const EpochPlan& PlanBook::epoch_plan() {
  if (plan_) return *plan_;
  if (given_) {
    adopt();
  } else {
    const auto before = kept_state(parts_.replica);  // once for the probe and the rehearsal
    profile();
    memory_.choose_where_to_keep();
    plan_ = make_epoch_plan();
    memory_.rehearse(*plan_, [this] { return make_epoch_plan(); });
  }
  parts_.events.send(event::PlanMade{*plan_});
  say_statistics();
  return *plan_;
}

bool PlanBook::has_plan_of(std::int64_t batch_size) const {
  if (!plan_) return false;
  const bool last = plan_->last && plan_->last->global_batch_size == batch_size;
  return last || plan_->full.global_batch_size == batch_size || other_plans_.contains(batch_size);
}

const Plan& PlanBook::plan_of(std::int64_t batch_size) {
  const EpochPlan& plans = epoch_plan();
  if (plans.full.global_batch_size == batch_size) return plans.full;
  if (plans.last && plans.last->global_batch_size == batch_size) return *plans.last;
  const auto found = other_plans_.find(batch_size);
  if (found != other_plans_.end()) return found->second;
  profile();
  return other_plans_.emplace(batch_size, make_plan(batch_size)).first->second;
}

const Plan& PlanBook::plan_in_pattern(std::int64_t batch_size) {
  const Plan& full = epoch_plan().full;
  if (batch_size >= full.global_batch_size) return plan_of(batch_size);
  profile();
  const PlannerOptions options = tables_.options();
  EpochPlan found = plan_on_rank_0([&] {
    if (options.lock_step) {
      PlannerOptions as_many = options;
      std::int64_t least = 0;
      std::int64_t most = 0;
      for (const RankCost& rank : tables_.costs()) {
        least += rank.min_micro_batch;
        most += std::min(rank.max_micro_batch, rank.fixed_micro_batch.value_or(rank.max_micro_batch));
      }
      std::int64_t steps = 0;
      for (const MicroBatchRun& run : full.ranks.front().micro_batches) steps += run.count;
      const std::int64_t fewest = (batch_size + most - 1) / most;
      as_many.gradient_accumulation_steps = std::max(fewest, std::min(batch_size / least, steps));
      return to_json(plan_global_batch(batch_size, tables_.costs(), as_many));
    }
    std::optional<Plan> plan;
    if (options.grain == 0) plan = in_pattern_of(full, batch_size, tables_.costs());
    return to_json(plan ? *plan : plan_global_batch(batch_size, tables_.costs(), options));
  });
  return other_plans_.insert_or_assign(batch_size, std::move(found.full)).first->second;
}

EpochPlan PlanBook::make_epoch_plan() {
  const BatchConfiguration& batch = parts_.configuration.batch;
  return plan_on_rank_0([&] {
    return to_json(
        plan_epoch(batch.global_batch_size, parts_.data.size(), batch.last_batch, tables_.costs(), tables_.options()));
  });
}

// A shorter one than the run's: it need not have as many samples as the fixed number of steps asks for.
Plan PlanBook::make_plan(std::int64_t batch_size) {
  return plan_on_rank_0([&] {
           PlannerOptions options = tables_.options();
           const std::int64_t least = options.gradient_accumulation_steps.value_or(0) * parts_.control.size();
           if (batch_size < least) options.gradient_accumulation_steps.reset();
           return to_json(plan_global_batch(batch_size, tables_.costs(), options));
         })
      .full;
}

EpochPlan PlanBook::plan_on_rank_0(const std::function<std::string()>& plan) const {
  std::string text;
  agree_on_rank_0(parts_.control, [&] { text = plan(); });
  return parse_epoch_plan(comm::broadcast_text(parts_.control, text, 0), "rank 0's plan");
}

std::string PlanBook::why_not(const EpochPlan& plan) const {
  const bool bitwise = parts_.configuration.run.deterministic == Determinism::bitwise;
  return why_not_followed(plan,
                          {.batch = parts_.configuration.batch,
                           .dataset_size = parts_.data.size(),
                           .world_size = parts_.control.size(),
                           .grain = bitwise ? parts_.configuration.batch.micro_batch_size.at(0) : 0,
                           .lock_step = parts_.runner.apart() != nullptr && parts_.runner.apart()->in_lock_step()});
}

void PlanBook::use_plan(EpochPlan plan) {
  if (!plan_ && !given_) given_.emplace(Given{std::move(plan), {}});
}

void PlanBook::repeat_plan(EpochPlan plan, const std::string& origin) {
  const std::string wrong = why_not(plan);
  if (!wrong.empty())
    throw AgreedError(ExitCode::user_error, origin + " " + wrong + ": let this run make its own plan");
  given_.emplace(Given{std::move(plan), origin});
}

void PlanBook::adopt() {
  plan_ = given_->plan;
  const RankPlan& mine = plan_->full.ranks.at(static_cast<std::size_t>(parts_.control.rank()));
  // Nothing is probed for it: the plan fits in memory as it was made. What lies in host memory is the program's, not
  // native code's.
  if ((mine.recomputes || mine.kept_in_host) && parts_.configuration.memory.recompute == Recompute::automatic)
    recompute(parts_.runner);
  if (parts_.runner.apart() != nullptr)
    parts_.runner.apart()->keep_in(mine.kept_in_host ? SavedPlace::host : SavedPlace::device);
  if (!given_->origin.empty()) {
    const auto devices = comm::all_gather_text(parts_.control, parts_.replica.device.name());
    std::string others;
    for (std::size_t r = 0; r < devices.size(); ++r) {
      if (plan_->full.ranks[r].device != devices[r])
        others += fmt::format("; rank {} was {} and is {}", r, plan_->full.ranks[r].device, devices[r]);
    }
    parts_.events.info("the plan is that of " + given_->origin + others);
    memory_.rehearse_given(*plan_, given_->origin);
  }
  given_.reset();
}

void PlanBook::say_statistics() const {
  std::int64_t count = 0;
  std::int64_t largest = 0;
  for (const RankPlan& rank : plan_->full.ranks) {
    for (const MicroBatchRun& run : rank.micro_batches) {
      count += run.count;
      largest = std::max(largest, run.size);
    }
  }
  if (!parts_.takes_local_statistics() || count < 2) return;
  const std::int64_t least = least_statistics(plan_->full, Statistics::each_micro_batch).value_or(0);
  const std::string sizes = least == largest ? fmt::to_string(largest) : fmt::format("{} to {}", least, largest);
  parts_.events.info(
      fmt::format("BatchNorm takes its statistics from each micro-batch (of {} samples): the plan is part "
                  "of the result (--plan repeats it; batch_norm.mode = \"exact\" needs no plan)",
                  sizes));
}

bool PlanBook::lower_limits(const std::vector<std::int64_t>& failed_sizes) {
  if (parts_.configuration.batch.gradient_accumulation_steps) return false;
  const bool measured = tables_.measured();
  profile();  // a resumed run may have had its plan from the checkpoint: then it is measured now, as things are now
  if (measured) memory_.make_room(failed_sizes, plan_->full);
  plan_anew();
  return true;
}

void PlanBook::plan_anew() {
  forget_plans();
  epoch_plan();
}

void PlanBook::replace(EpochPlan plan) {
  forget_plans();
  plan_ = std::move(plan);
}

void PlanBook::forget_plans() {
  plan_.reset();
  other_plans_.clear();
  ++edition_;
}

}  // namespace onebatch
