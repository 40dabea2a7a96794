#include "trainer/verify/judge.hpp"

#include "trainer/device/compute_device.hpp"
#include "trainer/graph/tape.hpp"
#include "trainer/io/named_tensors.hpp"
#include "trainer/verify/mixing_operator.hpp"
#include "trainer/verify/reference_buffers.hpp"
#include "trainer/verify/sensitivity.hpp"
#include "trainer/verify/separation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace onebatch {
namespace {

constexpr std::size_t k_few_samples = 7;
constexpr double k_same_weight = 1e-6;        // a model may return it in float32
constexpr double k_most_by_order = 1e-3;      // of float64; more is no rounding
constexpr double k_least_in_float64 = 1e-10;  // of the plan's micro-batches: what mixes samples is far above it
constexpr double k_times_nearer = 0.1;        // what the other side of a kink explains leaves little
constexpr double k_times_tolerance = 4.0;
constexpr double k_most_by_a_kink = 1e-2;
constexpr double k_part_of_gradients = 0.25;  // judge_number allows four times that: the gradient's own error

}  // namespace

Judge::Judge(const ReferenceParts& parts, double tolerance)
    : Judge(parts, tolerance, weights_of(*parts.replica.model)) {}

Judge::Judge(const ReferenceParts& parts, double tolerance, const Weights& weights)
    : parts_(parts),
      given_tolerance_(tolerance),
      reference_(parts, {c10::Device(c10::kCPU), at::kDouble}, weights),
      in_float64_on_host_(parts.replica.type == at::kDouble && !parts.replica.autocast &&
                          parts.replica.device.device().is_cpu()),
      inside_(roundoff_inside(parts, weights)) {
  report_.precision = precision_text(parts.replica.autocast.value_or(parts.replica.type));
  report_.batch_norm = batch_norm_text(parts);
}

void Judge::judge(const TrainedBatch& batch, const ExpectedUpdate& update) {
  reference_.take_parameters(batch.before);
  const ReferenceModel::Answer exact = reference_.gradient_of({batch.samples}, batch.step);
  if (batch.totals.skipped || exact.sums.weight == 0.0) {
    const double error = apart(batch.totals.weight, exact.sums.weight);
    return add("weight", batch.where, error, judge_number(error, 0.0, roundoff_of_numbers()));
  }
  const Own own = own_answer(batch, exact);
  if (report_.parameters.empty()) describe(batch, exact.gradient, own);
  judge_gradient(batch, exact.gradient, own);
  if (report_.precision != "float64" && batch.step != 1) judge_float64(batch, exact.gradient);
  judge_sums(batch, exact.sums, own);
  if (update.knows_the_optimizer() && std::isfinite(batch.totals.grad_norm) &&
      (parts_.configuration.precision.master_weights || !at::isReducedFloatingType(parts_.replica.type))) {
    const ExpectedUpdate::Result found = update.compare(batch.gradient, exact.not_reached, batch.lr);
    add("weights", batch.where, found.relative_l2, found.judgement());
    if (report_.compared.back().verdict == Verdict::fail) take(wrong_update(batch, found.worst));
  }
  if (const auto average = std::isfinite(batch.totals.grad_norm) ? update.compare_average() : std::nullopt) {
    add("averaged weights", batch.where, average->relative_l2, average->judgement());
    if (report_.compared.back().verdict == Verdict::fail)
      take({"optimizer", "the averaged weights are not the average of the weights, most in " + average->worst});
  }
  judge_buffers(batch, own);
}

// What the forward changes may show at the weights that the step has made alone.
Reason Judge::wrong_update(const TrainedBatch& batch, const std::string& worst) const {
  const Group samples = weighing_samples(parts_, batch.samples, k_few_samples);
  try {
    const Separation found =
        separate_unequally(parts_, weights_of(*parts_.replica.model), samples, batch.step, at::kDouble);
    if (found.cause == "changed_parameters") return {found.cause, found.reason};
  } catch (const std::exception&) {  // then it is not known
  }
  return {
      "optimizer",
      fmt::format(
          "the gradient was made into other weights than the optimizer's formulas make of it, most in {}: a parameter "
          "whose memory is laid out in another way than its gradient's, or a forward that changes parameters",
          worst)};
}

// Of one number: in 16 bits a mean over samples whose own have two or three digits.
double Judge::roundoff_of_numbers() const {
  if (report_.precision == "float64") return std::max(unit_roundoff(at::kDouble), inside_);
  if (report_.precision == "float32") return k_float32_roundoff;
  return unit_roundoff(parts_.replica.autocast.value_or(parts_.replica.type)) / 128.0;
}

Judge::Own Judge::own_answer(const TrainedBatch& batch, const ReferenceModel::Answer& exact) {
  if (in_float64_on_host_)
    return {exact, apart_by_order(reference_, batch.samples, batch.step, exact.gradient),
            copies_of(reference_.model().buffers())};
  const c10::Device device = own_ ? own_->device() : parts_.replica.device.device();
  try {
    return own_answer_on(device, batch, exact);
  } catch (const std::exception& error) {
    if (device.is_cpu() || !is_out_of_memory(error)) throw;
  }
  own_.reset();
  parts_.replica.device.empty_cache();
  note("one single batch does not fit on " + parts_.replica.device.name() +
       ": what rounding it has by itself was found on the host");
  return own_answer_on(c10::Device(c10::kCPU), batch, exact);
}

Judge::Own Judge::own_answer_on(c10::Device device, const TrainedBatch& batch, const ReferenceModel::Answer& exact) {
  if (own_)
    own_->take_parameters(batch.before);
  else
    own_.emplace(parts_, Arithmetic{device, std::nullopt}, batch.before);
  const double order = apart_by_order(*own_, batch.samples, batch.step, exact.gradient);
  Own own{own_->gradient_of({batch.samples}, batch.step), order, copies_of(own_->model().buffers())};
  const double error = difference_of(own.answer.gradient, exact.gradient).relative_l2;
  own.error = error <= order ? order : error;
  return own;
}

void Judge::judge_separation(const TrainedBatch& batch) {
  const Group samples = weighing_samples(parts_, batch.samples, k_few_samples);
  if (samples.size() < 2) return;
  Separation found;
  try {
    found = separate_unequally(parts_, batch.before, samples, batch.step, at::kDouble);
  } catch (const std::exception& error) {
    found = {Separation::Outcome::not_judged, 0.0, 0.0, {}, error.what()};
  }
  if (found.outcome == Separation::Outcome::not_judged)
    return note("a few samples at once and in parts were not compared: " + found.reason);
  const bool same = found.outcome == Separation::Outcome::same;
  add("a few samples in parts", "step 1", found.relative_l2, {found.tolerance, same ? Verdict::pass : Verdict::fail});
  if (same) return;
  take({found.cause, found.reason});
  if (found.cause == "noise") report_.differences.push_back({"randomness", found.relative_l2});
}

void Judge::judge_gradient(const TrainedBatch& batch, const Gradient& exact, const Own& own) {
  const double u = in_float64_on_host_ || report_.precision == "float64" ? std::max(unit_roundoff(at::kDouble), inside_)
                                                                         : k_float32_roundoff;
  const double error = difference_of(batch.gradient, exact).relative_l2;
  const double summed = unit_roundoff(parts_.replica.gradients.flat().scalar_type());
  Judgement judgement =
      given_tolerance_ > 0.0
          ? Judgement{given_tolerance_, is_within(error, given_tolerance_) ? Verdict::pass : Verdict::fail}
          : onebatch::judge(error, own.error, u, [&] { return rounding(batch, summed); });
  if (judgement.verdict == Verdict::fail && u == k_float32_roundoff && error < k_most_by_a_kink)
    judgement = at_a_kink(batch, exact, error, judgement);
  if (report_.tolerance == 0.0) report_.tolerance = judgement.tolerance;
  add("gradient", batch.where, error, judgement);
  if (in_float64_on_host_) float64_error_ = error;
  judge_groups(batch, exact, own);
  // In float64 rounding alone is never so large that nothing can be judged.
  const bool nothing = judgement.verdict == Verdict::cannot_judge && in_float64_on_host_;
  if (judgement.verdict == Verdict::fail || nothing) explain(batch, exact, error, judgement.tolerance);
}

// Whether ours and the exact gradient are two sides of a kink, which one single batch need not have shown.
Judgement Judge::at_a_kink(const TrainedBatch& batch, const Gradient& exact, double error, const Judgement& found) {
  const double near = std::min(k_times_nearer * error, k_times_tolerance * found.tolerance);
  const auto neighbour = neighbour_with({batch.before, batch.samples, batch.step, k_float32_roundoff, near}, reference_,
                                        batch.gradient, exact);
  if (!neighbour) return found;
  const std::string text = fmt::format(
      "{}: an activation is within rounding of a kink (a ReLU's zero, two equal maxima), where the gradient jumps by "
      "{:.2g}: that of weights a few roundings of float32 off, in float64, is this one to {:.1g}",
      batch.where, neighbour->jump, neighbour->apart);
  note(text);
  if (given_tolerance_ == 0.0) return {neighbour->jump + near, Verdict::pass};
  take({"kink", text});
  return found;
}

double Judge::rounding(const TrainedBatch& batch, double u) const {
  ReferenceModel model(parts_, {c10::Device(c10::kCPU), at::kDouble, BatchNorms::frozen}, batch.before);
  return rounding_of_sums(model, groups_of(batch.plan, batch.samples), batch.step, u);
}

// The same micro-batches without the run's precision.
void Judge::judge_float64(const TrainedBatch& batch, const Gradient& exact) {
  if (batch_norm_groups(parts_, batch.plan, batch.samples).size() > 1) return;  // judge_groups has said it
  try {
    if (host_)
      host_->take_parameters(batch.before);
    else
      host_.emplace(parts_, batch.before);
    const double error = difference_of(host_->gradient_of(batch.samples, batch.plan, batch.step), exact).relative_l2;
    const double u = std::max(unit_roundoff(at::kDouble), inside_);
    double order = k_least_in_float64 / 2.0;
    if (!is_within(error, k_least_in_float64))
      order = std::max(order, std::min(k_most_by_order, apart_by_order(reference_, batch.samples, batch.step, exact)));
    const Judgement judgement = onebatch::judge(error, order, u, [&] { return rounding(batch, u); });
    add("gradient in float64", batch.where, error, judgement);
    float64_error_ = error;
    if (report_.float64 && !report_.float64->pass) return;
    report_.float64 = Float64Verdict{judgement.verdict == Verdict::pass, error, judgement.tolerance};
    if (judgement.verdict == Verdict::fail) explain(batch, exact, error, judgement.tolerance);
  } catch (const CannotCapture& error) {
    note(std::string("not computed in float64: ") + error.what());
  }
}

void Judge::judge_groups(const TrainedBatch& batch, const Gradient& exact, const Own& own) {
  const std::vector<Group> groups = batch_norm_groups(parts_, batch.plan, batch.samples);
  if (groups.size() < 2) return;
  try {
    ReferenceModel model(parts_, {c10::Device(c10::kCPU), at::kDouble}, batch.before);
    const Gradient by_groups = model.gradient_of(groups, batch.step).gradient;
    const double off = difference_of(batch.gradient, by_groups).relative_l2;
    const double size = difference_of(by_groups, exact).relative_l2;
    if (std::ranges::none_of(report_.differences, [](const auto& one) { return one.cause == "batch_norm"; })) {
      report_.differences.push_back({"batch_norm", size});
      const std::vector<std::string> layers = parts_.replica.model->batch_norm_layers();
      note(
          fmt::format("{} BatchNorm layer(s), first {}, make it another gradient than the large batch's by {:.2g} "
                      "(relative L2, the rest in float64)",
                      layers.size(), layers.empty() ? "one without a name" : layers.front(), size));
    }
    const Judgement judgement =
        onebatch::judge(off, own.error, k_float32_roundoff, [&] { return rounding(batch, k_float32_roundoff); });
    take(local_batch_norm(parts_, groups.size(), off, judgement.tolerance));
  } catch (const std::exception& error) {
    take({"batch_norm",
          fmt::format("BatchNorm normalises {} groups by their own statistics (how far that is off is not known: in "
                      "float64 such a group fails: {}); batch_norm.mode = \"exact\" makes it the large batch's",
                      groups.size(), error.what())});
  }
}

void Judge::explain(const TrainedBatch& batch, const Gradient& exact, double error, double tolerance) {
  if (!report_.cause.empty()) return;
  take(not_finite(batch.gradient, exact));
  const std::vector<Group> groups = groups_of(batch.plan, batch.samples);
  if (report_.cause.empty()) take(mixing_in_the_plan(parts_, batch.before, groups, batch.step));
  if (report_.cause.empty())
    take(rounded_reduction(parts_, batch.before, shares_of(batch.plan, batch.samples), batch.step, error));
  if (report_.cause.empty() && !parts_.replica.has_batch_statistics) {
    ReferenceModel model(parts_, {c10::Device(c10::kCPU), at::kDouble}, batch.before);
    take(taken_apart(parts_, float64_error_,
                     difference_of(model.gradient_of(groups, batch.step).gradient, exact).relative_l2, tolerance));
  }
}

// What rounds the gradient of an ill-conditioned model, its BatchNorm's inputs far from zero, rounds its loss, and the
// running statistics of the layers behind.
void Judge::judge_sums(const TrainedBatch& batch, const BatchSums& exact, const Own& single) {
  const BatchSums& own = single.answer.sums;
  const double weight = apart(batch.totals.weight, exact.weight);
  const double u = roundoff_of_numbers();
  add("weight", batch.where, weight, judge_number(weight, apart(own.weight, exact.weight), u));
  const double expected = exact.loss / exact.weight;
  const double loss = apart(batch.totals.loss_sum / batch.totals.weight, expected);
  add("loss", batch.where, loss,
      judge_number(loss, std::max(apart(own.loss / own.weight, expected), k_part_of_gradients * single.error), u));
}

void Judge::judge_buffers(const TrainedBatch& batch, const Own& own) {
  const auto exact = reference_.model().buffers();
  if (exact.empty()) return;
  const bool own_statistics = batch_norm_groups(parts_, batch.plan, batch.samples).size() > 1;
  std::vector<std::string> left_out;
  if (own_statistics) left_out = reference_.model().running_statistics();
  const BufferDifference ours = difference_of_buffers(batch.buffers, exact, left_out);
  const BufferDifference single = difference_of_buffers(own.buffers, exact, left_out);
  const double rounded = std::max(single.relative_l2, k_part_of_gradients * own.error);
  const Judgement judgement = judge_number(ours.relative_l2, rounded, roundoff_of_numbers());
  add("buffers", batch.where, ours.relative_l2, judgement);
  if (judgement.verdict == Verdict::fail)
    take({"hidden_state",
          "the buffer " + ours.worst + " is not what one large batch leaves in it: it changes in every micro-batch"});
}

void Judge::describe(const TrainedBatch& batch, const Gradient& exact, const Own& own) {
  const std::int64_t wanted = parts_.configuration.batch.global_batch_size;
  report_.reference = fmt::format("all {} samples at once on the CPU in float64", batch.samples.size());
  if (std::ssize(batch.samples) < wanted)
    report_.reference += fmt::format("; the global batch of {} is more than this host holds (or the data has)", wanted);
  const Difference total = difference_of(batch.gradient, exact);
  report_.relative_l2 = total.relative_l2;
  report_.max_abs = total.max_abs;
  report_.reference_relative_l2 = own.error;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const Difference one = difference_of(batch.gradient[i].tensor, exact[i].tensor);
    report_.parameters.push_back({exact[i].name, one.relative_l2, one.max_abs,
                                  difference_of(own.answer.gradient[i].tensor, exact[i].tensor).relative_l2});
  }
  if (report_.precision != "bfloat16" && report_.precision != "float16") return;
  report_.differences.push_back({"precision", own.error});
  note(report_.precision + fmt::format(" alone puts one single batch {:.2g} off float64 (relative L2)", own.error));
}

void Judge::add(const std::string& what, const std::string& where, double error, const Judgement& judgement) {
  report_.compared.push_back({what, where, error, judgement.tolerance, judgement.verdict});
}

void Judge::take(const Reason& reason) {
  if (reason.cause.empty() || !report_.cause.empty()) return;
  report_.cause = reason.cause;
  report_.reason = reason.text;
}

}  // namespace onebatch
