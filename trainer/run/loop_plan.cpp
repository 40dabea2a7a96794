// Which plan a run goes on with: its own of before, where that still holds.
#include "trainer/base/error.hpp"
#include "trainer/batch_norm/running_statistics.hpp"
#include "trainer/device/agreement.hpp"
#include "trainer/documents/documents.hpp"
#include "trainer/io/durable_file.hpp"
#include "trainer/run/loop.hpp"

#include <ATen/core/grad_mode.h>

namespace onebatch {

// A run that has died before its first checkpoint begins again with the plan that it had, where BatchNorm makes that a
// part of the result.
void TrainingLoop::begin_again() {
  const std::filesystem::path file = parts_.options.run_dir / "plan.json";
  std::string text;
  agree_on_rank_0(parts_.control, [&] {
    if (parts_.options.run_dir.empty() || !std::filesystem::exists(file)) return;
    try {
      text = to_json(parse_epoch_plan(read_text(file), file.string()));
    } catch (const UserError& error) {
      parts_.events.info(std::string(error.what()) + ": planning anew");
    }
  });
  text = comm::broadcast_text(parts_.control, text, 0);
  if (text.empty()) return;
  const EpochPlan plan = parse_epoch_plan(text, file.string());
  std::vector<std::string> devices;
  for (const RankPlan& rank : plan.full.ranks) devices.push_back(rank.device);
  reuse_plan(plan, devices);
}

// The same ranks go on with the same plan: then the resumed run is the uninterrupted one, bit for bit.
void TrainingLoop::reuse_plan(const EpochPlan& plan, const std::vector<std::string>& devices) {
  const bool same = devices == devices_ && plan.full.global_batch_size == parts_.configuration.batch.global_batch_size;
  const std::string wrong = same ? parts_.plans.book.why_not(plan) : "";
  if (same && wrong.empty()) {
    reuses_plan_ = true;
    return parts_.plans.book.use_plan(plan);
  }
  parts_.events.info(wrong.empty()
                         ? "the ranks, their devices or the global batch have changed since: probing and planning anew"
                         : "the run's plan " + wrong + ": probing and planning anew");
}

std::vector<std::int64_t> TrainingLoop::shares_of(const Plan& plan) {
  std::vector<std::int64_t> shares;
  for (const RankPlan& rank : plan.ranks) shares.push_back(rank.samples);
  return shares;
}

// A rank that had no samples has running statistics of nothing. Before it gets some, they become the others' average.
void TrainingLoop::hand_on_statistics() {
  const std::vector<std::int64_t> shares = shares_of(plan_of_steps());
  bool begins = false;
  for (std::size_t rank = 0; rank < shares_.size(); ++rank) begins = begins || (shares_[rank] == 0 && shares[rank] > 0);
  if (!begins) return;
  const at::NoGradGuard no_grad;
  const std::int64_t share = shares_[static_cast<std::size_t>(parts_.control.rank())];
  const std::vector<NamedTensor> own = parts_.replica.own_statistics();
  const auto averaged = average_statistics(own, static_cast<double>(share), parts_.control);
  for (std::size_t i = 0; i < own.size() && share == 0; ++i) own[i].tensor.copy_(averaged[i].tensor);
}

}  // namespace onebatch
