#include "trainer/planning.hpp"

#include "trainer/agreement.hpp"
#include "trainer/device/failed_backward.hpp"
#include "trainer/documents/documents.hpp"
#include "trainer/error.hpp"
#include "trainer/plan/plan_cluster.hpp"
#include "trainer/replica_state.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace onebatch {
namespace {

constexpr int k_most_rehearsals = 12;
constexpr double k_lowered_limit = 0.9;  // of the size that did not fit
constexpr double k_lowered_more = 0.6;   // where that was not enough twice

std::optional<std::int64_t> fixed_size_of(const BatchConfiguration& batch, int rank) {
  if (batch.micro_batch_size.empty()) return std::nullopt;
  return batch.micro_batch_size.size() == 1 ? batch.micro_batch_size.front() : batch.micro_batch_size.at(static_cast<std::size_t>(rank));
}

}  // namespace

RunPlans::RunPlans(const Configuration& configuration, Replica& replica, const Dataset& data, GradientReducer& reducer,
                   comm::Communicator& control, Observer& observer)
    : configuration_(configuration), replica_(replica), data_(data), reducer_(reducer), control_(control), observer_(observer) {}

const ClusterProfile& RunPlans::profile() {
  if (profile_) return *profile_;
  const BatchConfiguration& batch = configuration_.batch;
  const ProbeRequest request{.probe = configuration_.probe,
                             .fixed_micro_batch = fixed_size_of(batch, control_.rank()),
                             .max_size = std::min(batch.global_batch_size, data_.size())};
  profile_ = probe_cluster(request, replica_, data_, reducer_, control_);
  if (control_.rank() == 0) observer_.profile_measured(*profile_);
  return *profile_;
}

void RunPlans::use_profile(ClusterProfile profile) {
  if (profile.ranks.size() != static_cast<std::size_t>(control_.size())) {
    throw UserError("the profile has " + std::to_string(profile.ranks.size()) + " ranks, but " + std::to_string(control_.size()) +
                    " were started");
  }
  profile_ = std::move(profile);
}

void RunPlans::use_plan(EpochPlan plan) {
  plan_ = std::move(plan);
  if (control_.rank() == 0) observer_.plan_made(*plan_);
}

const EpochPlan& RunPlans::epoch_plan() {
  if (plan_) return *plan_;
  profile();
  plan_ = make_epoch_plan();
  rehearse();
  if (control_.rank() == 0) observer_.plan_made(*plan_);
  return *plan_;
}

const Plan& RunPlans::plan_of(std::int64_t batch_size) {
  const EpochPlan& plans = epoch_plan();
  if (plans.full.global_batch_size == batch_size) return plans.full;
  if (plans.last && plans.last->global_batch_size == batch_size) return *plans.last;
  const auto found = other_plans_.find(batch_size);
  if (found != other_plans_.end()) return found->second;
  profile();
  return other_plans_.emplace(batch_size, make_plan(batch_size)).first->second;
}

EpochPlan RunPlans::make_epoch_plan() {
  const BatchConfiguration& batch = configuration_.batch;
  const bool drop = batch.last_batch == LastBatch::drop;
  return plan_on_rank_0([&] {
    return to_json(
        plan_epoch(batch.global_batch_size, data_.size(), drop, rank_costs(*profile_, batch), planner_options(*profile_, batch)));
  });
}

Plan RunPlans::make_plan(std::int64_t batch_size) {
  const BatchConfiguration& batch = configuration_.batch;
  return plan_on_rank_0(
             [&] { return to_json(plan_global_batch(batch_size, rank_costs(*profile_, batch), planner_options(*profile_, batch))); })
      .full;
}

EpochPlan RunPlans::plan_on_rank_0(const std::function<std::string()>& plan) const {
  std::string text;
  agree_on_rank_0(control_, [&] { text = plan(); });
  return parse_epoch_plan(comm::broadcast_text(control_, text, 0), "rank 0's plan");
}

bool RunPlans::lower_limits(const std::vector<std::int64_t>& failed_sizes) {
  if (configuration_.batch.gradient_accumulation_steps) return false;
  const bool measured = profile_.has_value();
  profile();  // a resumed run may have had its plan from the checkpoint: then it is measured now, as things are now
  if (measured) {
    for (std::size_t rank = 0; rank < failed_sizes.size(); ++rank) {
      if (failed_sizes[rank] > 0) lower_limit(rank, failed_sizes[rank], k_lowered_limit, "it ran out of memory in a step");
    }
  }
  plan_.reset();
  other_plans_.clear();
  epoch_plan();
  return true;
}

void RunPlans::lower_limit(std::size_t rank, std::int64_t failed_size, double factor, const std::string& why) {
  auto& limit = profile_->ranks[rank].max_micro_batch;
  limit = std::min(limit, std::max(profile_->ranks[rank].min_micro_batch,
                                   static_cast<std::int64_t>(std::floor(factor * static_cast<double>(failed_size)))));
  if (control_.rank() == 0)
    observer_.fallback("micro-batches of " + std::to_string(failed_size) + " on rank " + std::to_string(rank),
                       "at most " + std::to_string(limit) + ", since " + why);
}

void RunPlans::rehearse() {
  const ReplicaSnapshot before(replica_);
  TrainingStep step(replica_, data_, reducer_, control_, configuration_.optimizer.max_grad_norm);
  for (int attempt = 1; !rehearsal_fits(step, attempt <= 2 ? k_lowered_limit : k_lowered_more); ++attempt) {
    before.restore(replica_);
    if (attempt == k_most_rehearsals)
      throw AgreedError(ExitCode::does_not_fit,
                        "the plan runs out of memory in its rehearsal, however small its micro-batches: raise probe.margin");
    plan_ = make_epoch_plan();
  }
  before.restore(replica_);
}

bool RunPlans::rehearsal_fits(TrainingStep& step, double factor) {
  std::vector<std::int64_t> samples(static_cast<std::size_t>(plan_->full.global_batch_size));
  for (std::size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<std::int64_t>(i) % data_.size();
  const RankPlan& share = plan_->full.ranks.at(static_cast<std::size_t>(control_.rank()));
  // This rank's part first and alone: a rank that runs out of memory must not leave the others in a collective.
  std::int64_t failed_size = 0;
  agree(control_, [&] {
    try {
      replica_.gradients.begin_step();
      accumulate_gradient(replica_, data_, slice_of_rank(samples, plan_->full, control_.rank()), share.micro_batches, 0);
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error)) throw;
      failed_size = share.micro_batches.back().size;
    }
    if (failed_size == 0) return;
    recover_from_out_of_memory(replica_.device);
  });
  std::vector<std::int64_t> failed(static_cast<std::size_t>(control_.size()));
  control_.all_gather(&failed_size, failed.data(), sizeof(failed_size));
  bool fits = true;
  for (std::size_t rank = 0; rank < failed.size(); ++rank) {
    if (failed[rank] == 0) continue;
    fits = false;
    lower_limit(rank, failed[rank], factor, "the rehearsal ran out of memory");
  }
  if (fits) step.run({.global_batch = samples, .plan = plan_->full, .lr = 0.0});
  return fits;
}

}  // namespace onebatch
