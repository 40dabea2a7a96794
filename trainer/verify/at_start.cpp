#include "trainer/verify/at_start.hpp"

#include "comm/stopwatch.hpp"
#include "trainer/base/error.hpp"
#include "trainer/device/agreement.hpp"
#include "trainer/device/memory_budget.hpp"
#include "trainer/replica/replica_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace onebatch {
namespace {

constexpr double k_most_seconds = 4.0;     // for all of it
constexpr double k_float64_seconds = 1.0;  // in float64 only where that is quick
constexpr double k_times_float32 = 6.0;    // what a forward and backward in float64 takes at most, in those of float32
constexpr double k_least_passes = 20.0;    // over the weights that any answer takes, each as long as copying them
constexpr std::size_t k_samples = 7;

bool is_split(const Plan& plan) {
  std::int64_t micro_batches = 0;
  for (const RankPlan& rank : plan.ranks) {
    for (const MicroBatchRun& run : rank.micro_batches) micro_batches += run.count;
  }
  return micro_batches > 1;
}

bool is_split(const EpochPlan& plan) {
  return is_split(plan.full) || (plan.last && is_split(*plan.last));
}

// None where it takes longer.
std::optional<Weights> weights_within(double seconds, const Model& model) {
  const comm::Stopwatch watch;
  Weights weights;
  for (const auto& [name, tensor] : state_of(model)) {
    weights.push_back(host_bytes(tensor));
    if (watch.seconds() > seconds) return std::nullopt;
  }
  return weights;
}

class AtStart {
 public:
  AtStart(const AtStartParts& parts, std::int64_t step) : parts_(parts), step_(step) {}

  Separation run(const std::vector<std::int64_t>& batch) {
    constexpr double k_most_copying = k_most_seconds / k_least_passes;
    std::optional<Weights> copied = weights_within(k_most_copying, *parts_.reference.replica.model);
    if (!copied)
      return not_judged(
          fmt::format("the model is too large for it: copying its weights alone takes over {:.1f} s", k_most_copying));
    weights_ = *std::move(copied);
    const Group samples = weighing_samples(parts_.reference, batch, k_samples);
    if (samples.size() < 2) return not_judged("the batch has fewer than two samples with a label that counts");
    Separation found = judge_or_say_why_not(samples);
    if (weights_of(*parts_.reference.replica.model) != weights_)
      throw std::logic_error("the check at the start has changed the model");
    return found;
  }

 private:
  Separation judge_or_say_why_not(const Group& samples) const {
    try {
      return judge(samples);
    } catch (const std::exception& error) {
      const std::string text = error.what();  // what the model throws of a micro-batch stops the run where it matters
      return not_judged(text.substr(0, text.find('\n')));
    }
  }

  // As many samples as cost little; three, in parts of one and two, and then two are the least that show anything.
  Separation judge(const Group& samples) const {
    const auto [building, seconds] = seconds_of_one(samples.front());
    const double left = k_most_seconds - since_begin_.seconds();
    for (const std::size_t count : {k_samples, std::size_t{3}}) {
      const Group few(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(std::min(count, samples.size())));
      const auto passes = static_cast<double>(2 * few.size());
      if (building + seconds * k_times_float32 * passes <= std::min(left, k_float64_seconds))
        return separated(few, at::kDouble);
      if (count == 3 && building + seconds * passes <= left) return separated(few, at::kFloat);
    }
    if (building + seconds * 4.0 <= left) return separated({samples[0], samples[1]}, at::kFloat);
    return not_judged(fmt::format("one sample's gradient takes {:.1f} s on the host", seconds));
  }

  struct Cost {
    double building = 0.0;
    double gradient = 0.0;  // of one sample
  };
  Cost seconds_of_one(std::int64_t sample) const {
    const comm::Stopwatch watch;
    ReferenceModel model(parts_.reference, {c10::Device(c10::kCPU), at::kFloat, BatchNorms::frozen}, weights_);
    const double building = watch.seconds();
    model.gradient_of({{sample}}, step_);
    return {building, watch.seconds() - building};
  }

  Separation separated(const Group& samples, at::ScalarType type) const {
    Separation found = separate_unequally(parts_.reference, weights_, samples, step_, type);
    // What refuses a run is not left to rounding.
    if (found.outcome == Separation::Outcome::differs && type != at::kDouble)
      found = separate_unequally(parts_.reference, weights_, samples, step_, at::kDouble);
    return found;
  }

  static Separation not_judged(const std::string& reason) {
    return {Separation::Outcome::not_judged, 0.0, 0.0, {}, reason};
  }

  const AtStartParts& parts_;
  std::int64_t step_;
  comm::Stopwatch since_begin_;
  Weights weights_;
};

void answer(const AtStartParts& parts, const Separation& found) {
  if (found.outcome == Separation::Outcome::same) return;
  if (found.outcome == Separation::Outcome::not_judged)
    return parts.events.info("the model's gradient in parts was not checked at the start (verify.at_start): " +
                             found.reason);
  // A model that is to be noisy has no gradient of its own to be equal to.
  if (found.cause == "noise")
    return parts.events.fallback("the large batch's gradient whatever the plan", found.reason);
  const bool harmless_at_once = found.cause == "mixes_samples" || found.cause == "loss_weight";
  if (harmless_at_once && !is_split(parts.plan))
    return parts.events.warn(found.reason +
                             "; this plan computes every batch at once, and only such a plan trains this model truly");
  throw UserError(
      "a few samples at once and in parts give two gradients, " +
      fmt::format("{:.2g} apart (relative L2, {:.1g} is allowed): ", found.relative_l2, found.tolerance) +
      found.reason +
      ". Mend the model; verify.at_start = false trains it all the same, and what it learns then depends on the plan");
}

}  // namespace

void check_at_start(const AtStartParts& parts, const std::vector<std::int64_t>& batch, std::int64_t step) {
  if (!parts.reference.configuration.verify.at_start) return;
  parts.control.set_activity("the check at the start");
  agree_on_rank_0(parts.control, [&] {
    const UnlimitedMemory on_the_host(MemoryBudget::install());
    const GeneratorState generators(parts.reference.replica);
    const Separation found = AtStart(parts, step).run(batch);
    generators.restore(parts.reference.replica);
    answer(parts, found);
  });
}

}  // namespace onebatch
