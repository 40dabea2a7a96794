#include "trainer/verify/reasons.hpp"

#include "trainer/verify/separation.hpp"

#include <ATen/ops/isfinite.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace onebatch {
namespace {

constexpr double k_alike = 3.0;  // two errors of one origin, as factors

bool is_finite(const at::Tensor& tensor) {
  return tensor.isfinite().all().item<bool>();
}

}  // namespace

Reason not_finite(const Gradient& ours, const Gradient& exact) {
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (is_finite(ours[i].tensor)) continue;
    return {"not_finite", "the gradient of " + ours[i].name + " holds NaN or infinity" +
                              (is_finite(exact[i].tensor) ? ", and that of the single batch does not"
                                                          : ", and so does that of the single batch in float64")};
  }
  for (const auto& [name, tensor] : exact) {
    if (!is_finite(tensor))
      return {"not_finite", "the single batch's gradient of " + name + " holds NaN or infinity in float64"};
  }
  return {};
}

Reason local_batch_norm(const ReferenceParts& parts, std::size_t num_groups, double off_groups, double tolerance) {
  if (num_groups < 2 || !is_within(off_groups, tolerance)) return {};
  const bool local = parts.configuration.batch_norm.mode == BatchNormMode::local;
  return {"batch_norm",
          fmt::format("BatchNorm is {}: it normalises each of the {} {} by its own statistics, whose gradient this is "
                      "(relative L2 {:.2g}); batch_norm.mode = \"exact\" makes it the large batch's",
                      local ? "local" : "synchronised over ranks", num_groups,
                      local ? "micro-batches" : "accumulation steps", off_groups)};
}

Reason rounded_reduction(const ReferenceParts& parts, const Weights& weights, const std::vector<Group>& by_rank,
                         std::int64_t step, double found) {
  if (parts.configuration.comm.reduce_dtype != ReduceType::bfloat16 || by_rank.size() < 2) return {};
  ReferenceModel model(parts, {c10::Device(c10::kCPU), at::kDouble, BatchNorms::frozen}, weights);
  Gradient sum, rounded;
  for (const Group& share : by_rank) {
    if (share.empty()) continue;
    model.add(share, step, 1);
    const Gradient one = model.take_gradient(1.0, 1);
    for (std::size_t i = 0; i < one.size(); ++i) {
      const at::Tensor short_one = one[i].tensor.to(at::kBFloat16).to(at::kDouble);
      if (sum.size() <= i) {
        sum.push_back(one[i]);
        rounded.push_back({one[i].name, short_one});
        continue;
      }
      sum[i].tensor = sum[i].tensor.add(one[i].tensor);
      rounded[i].tensor = rounded[i].tensor.add(short_one).to(at::kBFloat16).to(at::kDouble);
    }
  }
  const double alone = difference_of(rounded, sum).relative_l2;
  if (!(found <= k_alike * alone) || !(alone <= k_alike * found)) return {};
  return {"reduction", fmt::format("comm.reduce_dtype = \"bfloat16\" rounds the ranks' sums on their way: that alone "
                                   "makes {:.2g} (relative L2); \"float32\" does not",
                                   alone)};
}

Reason mixing_in_the_plan(const ReferenceParts& parts, const Weights& weights, const std::vector<Group>& groups,
                          std::int64_t step) {
  if (groups.size() < 2) return {};
  const Separation found = separate({parts, weights, groups, step, at::kDouble});
  if (found.outcome != Separation::Outcome::differs) return {};
  return {found.cause, found.reason};
}

Reason taken_apart(const ReferenceParts& parts, double float64_error, double groups_error, double tolerance) {
  if (!parts.taken_apart || is_within(float64_error, tolerance) || !is_within(groups_error, tolerance)) return {};
  return {"taken_apart",
          fmt::format("the model taken apart is not the model: its micro-batches by ordinary forwards give the large "
                      "batch's gradient, and by its parts one {:.2g} off (relative L2, float64)",
                      float64_error)};
}

Reason unknown() {
  return {"unknown",
          "none of what was tried explains it: samples that mix, noise, hidden state, changed parameters, BatchNorm's "
          "statistics, the reduction's rounding, the model as it is taken apart"};
}

std::string batch_norm_text(const ReferenceParts& parts) {
  if (parts.configuration.batch_norm.frozen) return "frozen";
  if (parts.replica.model->batch_norm_layers().empty()) return "none";
  switch (parts.configuration.batch_norm.mode) {
    case BatchNormMode::local: return "local";
    case BatchNormMode::sync: return "sync";
    case BatchNormMode::exact: return "exact";
  }
  return "local";
}

std::string precision_text(at::ScalarType type) {
  switch (type) {
    case at::kDouble: return "float64";
    case at::kHalf: return "float16";
    case at::kBFloat16: return "bfloat16";
    default: return "float32";
  }
}

std::vector<Group> groups_of(const Plan& plan, std::span<const std::int64_t> samples) {
  std::vector<Group> groups;
  for (const RankPlan& rank : plan.ranks) {
    for (const auto part : micro_batches_of(slice_of_rank(samples, plan, rank.rank), rank.micro_batches))
      groups.emplace_back(part.begin(), part.end());
  }
  std::erase_if(groups, [](const Group& group) { return group.empty(); });
  return groups;
}

std::vector<Group> shares_of(const Plan& plan, std::span<const std::int64_t> samples) {
  std::vector<Group> shares;
  for (const RankPlan& rank : plan.ranks) {
    const auto share = slice_of_rank(samples, plan, rank.rank);
    shares.emplace_back(share.begin(), share.end());
  }
  return shares;
}

std::vector<Group> batch_norm_groups(const ReferenceParts& parts, const Plan& plan,
                                     std::span<const std::int64_t> samples) {
  const BatchNormMode mode = parts.configuration.batch_norm.mode;
  if (!parts.replica.has_batch_statistics || mode == BatchNormMode::exact)
    return {Group(samples.begin(), samples.end())};
  if (mode == BatchNormMode::local) return groups_of(plan, samples);
  std::vector<Group> rounds;
  for (const RankPlan& rank : plan.ranks) {
    std::size_t round = 0;
    for (const auto part : micro_batches_of(slice_of_rank(samples, plan, rank.rank), rank.micro_batches)) {
      if (round >= rounds.size()) rounds.resize(round + 1);
      rounds[round].insert(rounds[round].end(), part.begin(), part.end());
      ++round;
    }
  }
  std::erase_if(rounds, [](const Group& group) { return group.empty(); });
  return rounds;
}

}  // namespace onebatch
