#include "trainer/verify.hpp"

#include "trainer/agreement.hpp"
#include "trainer/checkpoint/tensor_file.hpp"
#include "trainer/data/sample_order.hpp"
#include "trainer/device/autocast.hpp"
#include "trainer/device/memory_budget.hpp"
#include "trainer/error.hpp"
#include "trainer/graph/capture_check.hpp"
#include "trainer/graph/tape.hpp"
#include "trainer/replica_state.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace onebatch {
namespace {

constexpr double k_host_share = 0.7;  // of what the host has to spare, for the reference
constexpr double k_fp64_tolerance = 1e-12;
constexpr double k_fp32_tolerance = 2e-6;
constexpr double k_times_own_error = 2.0;

using Gradient = std::vector<NamedTensor>;  // fp64 on the CPU, by parameter

struct Difference {
  double relative_l2 = 0.0;
  double max_abs = 0.0;
};

Difference difference_of(const at::Tensor& ours, const at::Tensor& reference) {
  const at::Tensor delta = ours.sub(reference);
  const double norm = at::linalg_vector_norm(reference).item<double>();
  const double error = at::linalg_vector_norm(delta).item<double>();
  return {norm > 0.0 ? error / norm : (error > 0.0 ? INFINITY : 0.0), delta.numel() > 0 ? delta.abs().max().item<double>() : 0.0};
}

// Over all parameters together.
Difference total_difference(const Gradient& ours, const Gradient& reference) {
  double error = 0.0;
  double norm = 0.0;
  Difference total;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const double delta = at::linalg_vector_norm(ours[i].tensor.sub(reference[i].tensor)).item<double>();
    const double size = at::linalg_vector_norm(reference[i].tensor).item<double>();
    error += delta * delta;
    norm += size * size;
    total.max_abs = std::max(total.max_abs, difference_of(ours[i].tensor, reference[i].tensor).max_abs);
  }
  total.relative_l2 = norm > 0.0 ? std::sqrt(error / norm) : (error > 0.0 ? INFINITY : 0.0);
  return total;
}

// All samples at once on the CPU, in `type`, from the same weights: written without the trainer's step, on purpose.
Gradient single_batch_gradient(const VerifyParts& parts, std::span<const std::int64_t> samples, at::ScalarType type,
                               const std::optional<at::ScalarType>& autocast, const std::vector<std::vector<std::byte>>& weights) {
  auto model = make_model_for(parts.configuration, parts.data, c10::Device(c10::kCPU), parts.replica.type);
  auto tensors = model->parameters();
  for (const auto& buffer : model->buffers()) tensors.push_back(buffer);
  for (std::size_t i = 0; i < tensors.size(); ++i) copy_from_bytes(tensors[i].tensor, weights.at(i));
  model->move_to(c10::Device(c10::kCPU), type, type);
  const bool reference = type == at::kDouble;
  const double scale = reference ? 1.0 : parts.replica.loss_scale.scale();
  const at::ScalarType loss_type = reference ? type : parts.replica.loss_type;
  Batch batch = parts.data.gather(samples, loss_type);
  for (at::Tensor& input : batch.inputs) input = input.is_floating_point() ? input.to(type) : input;
  const Loss& loss = parts.replica.loss;
  std::vector<at::Tensor> inputs = loss.is_the_models() ? batch.tensors() : batch.inputs;
  std::vector<at::Tensor> returned;
  {
    const AutocastScope scope(autocast, c10::Device(c10::kCPU));
    returned = model->run(inputs, {parts.replica.seed, 0, samples});
  }
  if (loss.is_the_models())
    returned[0].to(loss_type).div(returned[1].detach()).mul(scale).backward();
  else
    loss.sum(returned[0].to(loss_type), batch.targets, batch.weights).div(loss.weight(batch.targets, batch.weights)).mul(scale).backward();
  Gradient gradient;
  for (const auto& [name, tensor] : model->parameters()) {
    if (!tensor.requires_grad()) continue;
    const at::Tensor grad = tensor.grad().defined() ? tensor.grad() : at::zeros_like(tensor);
    gradient.push_back({name, grad.to(at::kDouble).div_(scale)});
  }
  return gradient;
}

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

std::vector<std::vector<std::byte>> model_bytes(const Replica& replica) {
  std::vector<std::vector<std::byte>> bytes;
  for (const auto& [name, tensor] : replica.model->parameters()) bytes.push_back(host_bytes(tensor));
  for (const auto& [name, tensor] : replica.model->buffers()) bytes.push_back(host_bytes(tensor));
  return bytes;
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

std::vector<std::string> what_makes_a_difference(const VerifyParts& parts, const Plan& plan) {
  std::vector<std::string> notes;
  const auto layers = parts.replica.model->batch_norm_layers();
  std::int64_t micro_batches = 0;
  std::int64_t rounds = 0;
  for (const RankPlan& rank : plan.ranks) {
    std::int64_t count = 0;
    for (const MicroBatchRun& run : rank.micro_batches) count += run.count;
    micro_batches += count;
    rounds = std::max(rounds, count);
  }
  const BatchNormMode mode = parts.configuration.batch_norm.mode;
  const std::string which = std::to_string(layers.size()) + " layer(s), first " + (layers.empty() ? "" : layers.front());
  if (!layers.empty() && micro_batches > 1 && mode == BatchNormMode::local) {
    notes.push_back(
        "BatchNorm is local: " + which + ", normalise each of the " + std::to_string(micro_batches) +
        " micro-batches by its own statistics, so this is not the gradient of the large batch; batch_norm.mode = \"exact\" makes it so");
  }
  if (!layers.empty() && rounds > 1 && mode == BatchNormMode::sync) {
    notes.push_back("BatchNorm is synchronised over ranks: " + which + ", normalise each of the " + std::to_string(rounds) +
                    " accumulation steps by its own statistics, so this is not the gradient of the large batch; batch_norm.mode = "
                    "\"exact\" makes it so");
  }
  // Any other reason why a model cannot be taken apart does not touch this gradient.
  try {
    check_capture(parts.configuration, parts.data);
  } catch (const DrawsOtherwise& error) {
    notes.push_back(std::string(error.what()) + "; dropout in all its forms is keyed");
  } catch (const CannotCapture&) {
  }
  return notes;
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
  report.pass = report.relative_l2 <= allowed;
}

}  // namespace

VerifyReport verify_gradient(const VerifyParts& parts, const VerifyOptions& options) {
  const auto weights = model_bytes(parts.replica);
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
    const Gradient reference = single_batch_gradient(parts, samples, at::kDouble, std::nullopt, weights);
    report.precision = precision_text(parts.replica.autocast.value_or(parts.replica.type));
    report.reference = "all " + std::to_string(plan.global_batch_size) + " samples at once on the CPU in float64";
    if (plan.global_batch_size < parts.configuration.batch.global_batch_size) {
      report.reference += "; the global batch of " + std::to_string(parts.configuration.batch.global_batch_size) +
                          " is more than this host holds (or the data has)";
    }
    report.batch_norm = batch_norm_text(parts);
    const Difference total = total_difference(ours, reference);
    report.relative_l2 = total.relative_l2;
    report.max_abs = total.max_abs;
    for (std::size_t i = 0; i < ours.size(); ++i) {
      const Difference one = difference_of(ours[i].tensor, reference[i].tensor);
      report.parameters.push_back({ours[i].name, one.relative_l2, one.max_abs});
    }
    report.reference_relative_l2 =
        total_difference(single_batch_gradient(parts, samples, parts.replica.type, parts.replica.autocast, weights), reference).relative_l2;
    report.notes = what_makes_a_difference(parts, plan);
    judge(report, options.tolerance);
    if (!options.save_gradient.empty()) save_tensors(options.save_gradient, ours);
  });
  int pass = report.pass ? 1 : 0;
  parts.control.broadcast(&pass, sizeof(pass), 0);
  report.pass = pass != 0;
  return report;
}

}  // namespace onebatch
