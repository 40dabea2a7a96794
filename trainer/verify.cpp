#include "trainer/verify.hpp"

#include "trainer/agreement.hpp"
#include "trainer/checkpoint/tensor_file.hpp"
#include "trainer/data/sample_order.hpp"
#include "trainer/device/memory_budget.hpp"
#include "trainer/error.hpp"
#include "trainer/formatted.hpp"
#include "trainer/graph/capture_check.hpp"
#include "trainer/graph/tape.hpp"
#include "trainer/reference_gradient.hpp"

#include <algorithm>
#include <cmath>

namespace onebatch {
namespace {

constexpr double k_host_share = 0.7;  // of what the host has to spare, for the reference
constexpr double k_fp64_tolerance = 1e-12;
constexpr double k_fp32_tolerance = 2e-6;
constexpr double k_times_own_error = 2.0;

using Group = std::vector<std::int64_t>;

Gradient plan_gradient(const VerifyParts& parts, std::span<const std::int64_t> samples, const Plan& plan) {
  TrainingStep step(parts.replica, parts.data, parts.reducer, parts.control, Clipping());
  if (step.compute_gradient({.global_batch = samples, .plan = plan, .lr = 0.0}).discarded)
    throw AgreedError(ExitCode::does_not_fit, "the plan runs out of memory: is another program using a device? Else raise probe.margin");
  Gradient gradient;
  const auto& flat = parts.replica.gradients;
  for (std::size_t i = 0; i < flat.views().size(); ++i)
    gradient.push_back({flat.parameters()[i].name, flat.views()[i].detach().cpu().to(at::kDouble)});
  return gradient;
}

// What one sample's activations take in fp64, by the probe's peaks; the largest batch that the host can hold at once.
std::int64_t largest_reference(const VerifyParts& parts, const ClusterProfile& profile) {
  const RankProfile& rank = profile.ranks.front();
  const double per_sample = static_cast<double>(std::max<std::int64_t>(0, rank.peak_bytes - rank.resident_bytes)) /
                            static_cast<double>(std::max<std::int64_t>(1, rank.largest_micro_batch));
  const double widening = parts.replica.type == at::kDouble ? 1.0 : 2.0;
  const double fixed = widening * static_cast<double>(rank.resident_bytes);
  const double room = k_host_share * static_cast<double>(available_host_memory_bytes()) - fixed;
  const double fits = per_sample > 0.0 ? room / (widening * per_sample) : static_cast<double>(INT32_MAX);
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(std::max(1.0, fits)), 1, parts.configuration.batch.global_batch_size);
}

std::string batch_norm_text(const VerifyParts& parts) {
  if (parts.configuration.batch_norm.frozen) return "frozen";
  if (parts.replica.model->batch_norm_layers().empty()) return "none";
  switch (parts.configuration.batch_norm.mode) {
    case BatchNormMode::local: return "local";
    case BatchNormMode::sync: return "sync";
    case BatchNormMode::exact: return "exact";
  }
  return "local";
}

// What is normalised together, where that is not the whole batch: every micro-batch, or every rank's in the same round.
std::vector<Group> batch_norm_groups(const Plan& plan, std::span<const std::int64_t> samples, BatchNormMode mode) {
  std::vector<Group> groups;
  for (const RankPlan& rank : plan.ranks) {
    std::size_t round = 0;
    for (const auto part : micro_batches_of(slice_of_rank(samples, plan, rank.rank), rank.micro_batches)) {
      const std::size_t group = mode == BatchNormMode::sync ? round++ : groups.size();
      if (group >= groups.size()) groups.resize(group + 1);
      groups[group].insert(groups[group].end(), part.begin(), part.end());
    }
  }
  std::erase_if(groups, [](const Group& group) { return group.empty(); });
  return groups;
}

void judge_batch_norm(VerifyReport& report, const VerifyParts& parts, const Plan& plan, std::span<const std::int64_t> samples,
                      const ReferenceGradient& reference, const Gradient& expected) {
  const auto layers = parts.replica.model->batch_norm_layers();
  const BatchNormMode mode = parts.configuration.batch_norm.mode;
  if (layers.empty() || mode == BatchNormMode::exact) return;
  const auto groups = batch_norm_groups(plan, samples, mode);
  if (groups.size() == 1) return;
  std::string size;
  try {
    report.differences.push_back({"batch_norm", difference_of(reference.exact(groups), expected).relative_l2});
    size = formatted(" (relative L2 %.2g, the rest in float64)", report.differences.back().relative_l2);
  } catch (const std::exception& error) {
    size = std::string(" (how far is not known: in float64 such a group fails: ") + error.what() + ")";
  }
  const std::string which = std::to_string(layers.size()) + " layer(s), first " + layers.front();
  report.notes.push_back(
      (mode == BatchNormMode::local
           ? "BatchNorm is local: " + which + ", normalise each of the " + std::to_string(groups.size()) + " micro-batches"
           : "BatchNorm is synchronised over ranks: " + which + ", normalise each of the " + std::to_string(groups.size()) +
                 " accumulation steps") +
      " by its own statistics, so this is not the gradient of the large batch" + size + "; batch_norm.mode = \"exact\" makes it so");
}

void judge_randomness(VerifyReport& report, const VerifyParts& parts, const Group& samples, const ReferenceGradient& reference,
                      const Gradient& expected) {
  // Any other reason why a model cannot be taken apart does not touch this gradient.
  try {
    check_capture(parts.configuration, parts.data);
  } catch (const DrawsOtherwise& error) {
    report.differences.push_back({"randomness", difference_of(reference.exact({samples}), expected).relative_l2});
    report.notes.push_back(
        std::string(error.what()) +
        formatted("; the same batch once more differs by %.2g (relative L2, in float64)", report.differences.back().relative_l2) +
        "; dropout in all its forms is keyed");
  } catch (const CannotCapture&) {
  }
}

void judge_precision(VerifyReport& report) {
  if (report.precision != "bfloat16" && report.precision != "float16") return;
  report.differences.push_back({"precision", report.reference_relative_l2});
  report.notes.push_back(report.precision +
                         formatted(" alone puts one single batch %.2g off float64 (relative L2)", report.reference_relative_l2));
}

std::string precision_text(at::ScalarType type) {
  switch (type) {
    case at::kDouble: return "float64";
    case at::kHalf: return "float16";
    case at::kBFloat16: return "bfloat16";
    default: return "float32";
  }
}

void judge(VerifyReport& report, double tolerance) {
  const double allowed =
      tolerance > 0.0 ? tolerance
                      : (report.precision == "float64" ? k_fp64_tolerance
                                                       : std::max(k_fp32_tolerance, k_times_own_error * report.reference_relative_l2));
  report.tolerance = allowed;
  report.pass = report.relative_l2 <= allowed;  // false for NaN
  report.verdict = report.pass ? Verdict::pass : Verdict::fail;
}

}  // namespace

VerifyReport verify_gradient(const VerifyParts& parts, const VerifyOptions& options) {
  const ReferenceGradient reference(parts.configuration, parts.data, parts.replica);
  std::int64_t batch_size = largest_reference(parts, parts.plans.profile());
  parts.control.broadcast(&batch_size, sizeof(batch_size), 0);
  const Plan& plan = parts.plans.plan_of(std::min(batch_size, parts.data.size()));
  const bool drop = parts.configuration.batch.last_batch == LastBatch::drop;
  const auto samples = SampleOrder(parts.configuration.run.seed, parts.data.size(), plan.global_batch_size, drop).next();
  const Gradient ours = plan_gradient(parts, samples, plan);

  VerifyReport report;
  agree(parts.control, [&] {
    if (parts.control.rank() != 0) return;
    const UnlimitedMemory on_the_host(MemoryBudget::install());
    const Gradient expected = reference.exact({samples});
    const Gradient single = reference.in_own_precision(samples);
    report.precision = precision_text(parts.replica.autocast.value_or(parts.replica.type));
    report.reference = "all " + std::to_string(plan.global_batch_size) + " samples at once on the CPU in float64";
    if (plan.global_batch_size < parts.configuration.batch.global_batch_size) {
      report.reference += "; the global batch of " + std::to_string(parts.configuration.batch.global_batch_size) +
                          " is more than this host holds (or the data has)";
    }
    report.batch_norm = batch_norm_text(parts);
    const Difference total = difference_of(ours, expected);
    report.relative_l2 = total.relative_l2;
    report.max_abs = total.max_abs;
    for (std::size_t i = 0; i < ours.size(); ++i) {
      const Difference one = difference_of(ours[i].tensor, expected[i].tensor);
      report.parameters.push_back(
          {ours[i].name, one.relative_l2, one.max_abs, difference_of(single[i].tensor, expected[i].tensor).relative_l2});
    }
    report.reference_relative_l2 = difference_of(single, expected).relative_l2;
    judge_batch_norm(report, parts, plan, samples, reference, expected);
    judge_randomness(report, parts, samples, reference, expected);
    judge_precision(report);
    judge(report, options.tolerance);
    if (!options.save_gradient.empty()) save_tensors(options.save_gradient, ours);
  });
  int pass = report.pass ? 1 : 0;
  parts.control.broadcast(&pass, sizeof(pass), 0);
  report.pass = pass != 0;
  return report;
}

}  // namespace onebatch
