#include "trainer/verify/separation.hpp"

#include "trainer/device/generators.hpp"
#include "trainer/io/named_tensors.hpp"
#include "trainer/verify/mixing_operator.hpp"

#include <ATen/Context.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace onebatch {
namespace {

constexpr double k_float64_tolerance = 1e-10;
constexpr double k_float32_tolerance = 1e-3;  // a flipped ReLU among few samples
constexpr double k_most_tolerance = 1e-2;     // whatever a model's own rounding is
constexpr double k_roundings = 1e3;           // of a type that is shorter than the one asked for
constexpr double k_times_order = 8.0;         // what the order of the samples alone changes
constexpr double k_most_by_order = 1e-4;      // more than that is no rounding

constexpr std::uint64_t k_draws = 12;
constexpr std::size_t k_most_looked_at = 64;  // for samples that weigh something

// The first buffer that differs; empty where none does.
std::string first_other(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b, double tolerance) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].tensor.equal(b[i].tensor)) continue;
    const bool rounded =
        a[i].tensor.sizes() == b[i].tensor.sizes() &&
        is_within(difference_of(as_numbers(a[i].tensor), as_numbers(b[i].tensor)).relative_l2, tolerance);
    if (!rounded) return a[i].name;
  }
  return {};
}

class Experiments {
 public:
  explicit Experiments(const SeparationRequest& request)
      : request_(request),
        model_(fresh()),
        buffers_(model_.model().buffers()),
        tolerance_(first_tolerance(request.type)) {
    for (const Group& group : request.groups) all_.insert(all_.end(), group.begin(), group.end());
  }

  Separation run() {
    const Digest parameters = digest_of(model_.model().parameters());
    const std::vector<NamedTensor> before = copies_of(model_.model().buffers());
    const at::Tensor generator = host_generator_state();
    const Measured whole = measure({all_});
    const bool draws = !host_generator_state().equal(generator);
    if (digest_of(model_.model().parameters()) != parameters)
      return differs("changed_parameters", "the model's forward changes its parameters: only the optimizer may");
    if (draws && noise_shows(whole)) return explain_noise();
    const std::string moved = first_other(before, whole.buffers, 0.0);
    if (const auto names = model_.model().running_statistics(); std::ranges::find(names, moved) != names.end())
      return not_judged("its BatchNorm \"" + moved + "\" cannot be frozen");
    const Measured apart = measure(request_.groups);
    if (!std::isfinite(norm_of(whole.answer.gradient)) && !std::isfinite(norm_of(apart.answer.gradient)))
      return not_judged("its gradient is not finite");
    if (are_same(whole, apart)) return {Separation::Outcome::same, error_, tolerance_, {}, {}};
    allow_for_rounding(whole);
    if (are_same(whole, apart)) return {Separation::Outcome::same, error_, tolerance_, {}, {}};
    return explain(whole, apart, moved);
  }

 private:
  struct Measured {
    ReferenceModel::Answer answer;
    std::vector<NamedTensor> buffers;  // after it
  };

  static double first_tolerance(at::ScalarType type) {
    return type == at::kDouble ? k_float64_tolerance : k_float32_tolerance;
  }

  ReferenceModel fresh() const {
    return {request_.parts, {c10::Device(c10::kCPU), request_.type, BatchNorms::frozen}, request_.weights};
  }

  Measured measure(const std::vector<Group>& groups) {
    buffers_.restore();
    Measured measured{model_.gradient_of(groups, request_.step), {}};
    measured.buffers = copies_of(model_.model().buffers());
    return measured;
  }

  bool are_same(const Measured& whole, const Measured& apart) {
    const ReferenceModel::Answer& a = apart.answer;
    const ReferenceModel::Answer& b = whole.answer;
    error_ = difference_of(a.gradient, b.gradient).relative_l2;
    weights_add_up_ = is_within(onebatch::apart(a.sums.weight, b.sums.weight), std::max(tolerance_, 1e-6));
    return is_within(error_, tolerance_) && weights_add_up_ &&
           first_other(apart.buffers, whole.buffers, tolerance_).empty();
  }

  // What a model computes in a shorter type, and what the order of the samples alone changes, says nothing about
  // splitting.
  void allow_for_rounding(const Measured& whole) {
    buffers_.restore();
    const double inside = unit_roundoff(shortest_type(model_, all_, request_.step));
    if (inside > unit_roundoff(request_.type)) tolerance_ = std::max(tolerance_, k_roundings * inside);
    const double order =
        difference_of(measure({Group(all_.rbegin(), all_.rend())}).answer.gradient, whole.answer.gradient).relative_l2;
    if (order <= k_most_by_order) tolerance_ = std::max(tolerance_, k_times_order * order);
    tolerance_ = std::min(tolerance_, k_most_tolerance);
  }

  bool differ(const Measured& a, const Measured& b) const {
    return !is_within(difference_of(a.answer.gradient, b.answer.gradient).relative_l2, tolerance_);
  }

  Separation explain(const Measured& whole, const Measured& apart, const std::string& moved) {
    if (differ(measure({all_}), whole)) return explain_repetition();
    if (!moved.empty()) {
      const std::string name = first_other(apart.buffers, whole.buffers, tolerance_);
      return differs("hidden_state",
                     "the model's forward changes its buffer \"" + (name.empty() ? moved : name) +
                         "\", once in every micro-batch: what it holds, or what it does, depends on the plan");
    }
    if (!weights_add_up_)
      return differs(
          "loss_weight",
          fmt::format("the weight that the model returns does not add up over samples: {:g} for {} at once, {:g} for "
                      "them in parts; return the loss's sum and how much its samples weigh, not a mean and 1",
                      whole.answer.sums.weight, all_.size(), apart.answer.sums.weight));
    if (!std::isfinite(error_))
      return differs(
          "not_finite",
          "the gradient of the samples at once is finite and that of their parts is not, or the other way round");
    return explain_mixing(whole, apart);
  }

  // A few draws may agree by chance.
  bool noise_shows(const Measured& whole) {
    for (std::uint64_t seed = 1; seed <= k_draws; ++seed) {
      at::manual_seed(seed);
      if (differ(measure({all_}), whole)) return true;
    }
    return false;
  }

  Separation explain_noise() {
    const std::string place = first_drawing_operator(model_, all_, request_.step);
    return differs("noise", (place.empty() ? "something outside of operators" : place) +
                                ", draws random numbers that are not keyed by sample: the same batch twice gives two "
                                "gradients; dropout in all its forms is keyed");
  }

  // The same batch twice is not the same, and nothing was drawn.
  Separation explain_repetition() {
    return differs("hidden_state",
                   "the model keeps something from one forward to the next: the same batch twice gives two gradients");
  }

  Separation explain_mixing(const Measured& whole, const Measured& apart) {
    buffers_.restore();
    const std::string place = first_mixing_operator(model_, all_, request_.step);
    const bool at_the_loss = onebatch::apart(apart.answer.sums.loss, whole.answer.sums.loss) > tolerance_;
    std::string reason = "the model computes with other samples of the batch than a row's own";
    if (!place.empty())
      reason += ", first in " + place;
    else
      reason += at_the_loss ? ", in its loss" : ", in the backward alone";
    return differs("mixes_samples", reason + ": the gradient depends on which samples are in a micro-batch together");
  }

  [[nodiscard]] Separation differs(const std::string& cause, const std::string& reason) const {
    return {Separation::Outcome::differs, error_, tolerance_, cause, reason};
  }
  [[nodiscard]] Separation not_judged(const std::string& reason) const {
    return {Separation::Outcome::not_judged, error_, tolerance_, {}, reason};
  }

  const SeparationRequest& request_;
  ReferenceModel model_;
  SavedTensors buffers_;
  Group all_;
  double tolerance_;
  double error_ = 0.0;
  bool weights_add_up_ = true;
};

std::vector<Group> parts_of_sizes(const Group& samples, std::initializer_list<std::size_t> sizes) {
  std::vector<Group> parts;
  std::size_t begin = 0;
  for (const std::size_t size : sizes) {
    const std::size_t end = std::min(begin + size, samples.size());
    if (begin < end)
      parts.emplace_back(samples.begin() + static_cast<std::ptrdiff_t>(begin),
                         samples.begin() + static_cast<std::ptrdiff_t>(end));
    begin = end;
  }
  return parts;
}

}  // namespace

Group weighing_samples(const ReferenceParts& parts, const std::vector<std::int64_t>& batch, std::size_t wanted) {
  Group chosen;
  for (std::size_t i = 0; i < std::min(batch.size(), k_most_looked_at) && chosen.size() < wanted; ++i) {
    if (!parts.replica.loss.is_the_models()) {
      const Batch one = parts.data.gather({&batch[i], 1}, parts.replica.loss_type);
      if (!one.targets.defined() || !(parts.replica.loss.weight(one.targets, one.weights) > 0.0)) continue;
    }
    chosen.push_back(batch[i]);
  }
  return chosen;
}

Separation separate(const SeparationRequest& request) {
  return Experiments(request).run();
}

Separation separate_unequally(const ReferenceParts& parts, const Weights& weights, const Group& samples,
                              std::int64_t step, at::ScalarType type) {
  try {
    return separate({parts, weights, parts_of_sizes(samples, {1, 2, samples.size()}), step, type});
  } catch (const std::exception&) {
    if (samples.size() < 4) throw;
  }
  return separate({parts, weights, parts_of_sizes(samples, {(samples.size() + 1) / 2, samples.size()}), step, type});
}

}  // namespace onebatch
