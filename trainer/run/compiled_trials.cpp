#include "trainer/run/compiled_trials.hpp"

#include "comm/statistics.hpp"
#include "comm/stopwatch.hpp"
#include "trainer/base/error.hpp"
#include "trainer/data/augment.hpp"
#include "trainer/device/failed_backward.hpp"
#include "trainer/device/host.hpp"
#include "trainer/device/memory_budget.hpp"
#include "trainer/models/compiled_program.hpp"
#include "trainer/replica/train_micro_batch.hpp"
#include "trainer/verify/difference.hpp"
#include "trainer/verify/reference.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

namespace onebatch {
namespace {

constexpr std::int64_t k_samples = 3;     // of the comparison
constexpr double k_nudge = 0x1p-8;        // of a parameter in it
constexpr double k_times_the_own = 2.0;   // what a compiled gradient may be off, of what the program's own is
constexpr double k_times_an_order = 8.0;  // likewise, of what another order of the samples makes
constexpr double k_roundings = 16.0;      // that are no difference, whatever the own error
constexpr double k_in_float64 = 1e-12;    // likewise
constexpr double k_in_float16 = 256.0;    // by which the loss is multiplied, or where that is too much divided
constexpr double k_least_in_float16 = 1.0 / 256.0;
constexpr std::size_t k_least_pairs = 3;  // of micro-batches that are timed
constexpr std::size_t k_pairs = 9;
constexpr std::size_t k_most_pairs = 201;
constexpr double k_short_seconds = 0.5;  // of which quick ones fill at least so many
constexpr double k_long_seconds = 15.0;  // then fewer pairs are enough

// What is compared lies on the host, and takes none of what the device has.
Gradient numbers_of(const std::vector<NamedTensor>& tensors) {
  const UncountedMemory on_the_host;
  Gradient numbers;
  for (const auto& [name, tensor] : tensors) numbers.push_back({name, as_numbers(tensor).clone()});
  return numbers;
}

Gradient gradient_of(Replica& replica, double factor) {
  const UncountedMemory on_the_host;
  Gradient gradient;
  for (std::size_t i = 0; i < replica.gradients.views().size(); ++i)
    gradient.push_back({replica.gradients.parameters()[i].name, as_numbers(replica.gradients.views()[i]).div(factor)});
  return gradient;
}

// Weights and buffers, which are afterwards as they were.
class Kept {
 public:
  explicit Kept(Replica& replica) : replica_(replica), tensors_(state_of(*replica.model)) {
    const UncountedMemory on_the_host;
    for (const NamedTensor& one : tensors_)
      before_.push_back(one.tensor.detach().to(at::kCPU, /*non_blocking=*/false, /*copy=*/true));
  }
  ~Kept() {
    restore();
    replica_.gradients.begin_step();
  }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

  void restore() const {
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < tensors_.size(); ++i) at::Tensor(tensors_[i].tensor).copy_(before_[i]);
  }

 private:
  Replica& replica_;
  std::vector<NamedTensor> tensors_;
  std::vector<at::Tensor> before_;
};

// To other numbers than those that the program was compiled with, of which code may hold a copy.
void nudge(Replica& replica) {
  const at::NoGradGuard no_grad;
  for (const NamedTensor& one : replica.model->parameters()) {
    if (!one.tensor.is_floating_point()) continue;
    const at::Tensor steps =
        at::arange(one.tensor.numel(), one.tensor.options()).remainder(3).add_(1).view_as(one.tensor);
    at::Tensor(one.tensor).add_(steps, k_nudge);
  }
}

struct Trained {
  Gradient gradient;
  Gradient buffers;
};

using Training = decltype(&train_uncompiled);

std::vector<std::int64_t> first_samples(std::int64_t count, const Dataset& data) {
  std::vector<std::int64_t> samples(static_cast<std::size_t>(std::min(count, data.size())));
  std::iota(samples.begin(), samples.end(), std::int64_t{0});
  return samples;
}

// As the first epoch changes them.
Batch batch_of(const Replica& replica, const Dataset& data, const std::vector<std::int64_t>& samples) {
  return replica.load(TrainingData(data, replica.augment, {replica.seed, 0}), samples).batch;
}

// What two micro-batches leave.
Trained trained_by(Replica& replica, const Dataset& data, Training training, const std::vector<std::int64_t>& samples,
                   double factor = 1.0) {
  const Kept kept(replica);
  replica.gradients.begin_step();
  const Batch batch = batch_of(replica, data, samples);
  for (const std::int64_t step : {1, 2})
    training(replica, batch, {replica.seed, step, samples}, all_times(factor, replica));
  return {gradient_of(replica, factor), numbers_of(replica.model->buffers())};
}

// Of the same program with the same numbers, on the host.
Trained trained_on_host(const Configuration& configuration, const Dataset& data, Replica& replica,
                        const std::vector<std::int64_t>& samples, double factor = 1.0) {
  Configuration plain = configuration;
  plain.run.deterministic = Determinism::off;
  const UnlimitedMemory on_the_host(MemoryBudget::install());
  Host host;
  Replica other(plain, data, host);
  set_weights(state_of(*other.model), state_of(*replica.model), weights_of(*replica.model));
  return trained_by(other, data, &train_uncompiled, samples, factor);
}

// By the program as it is, on the host where the device has no memory for it. In float64 that is what is compared with,
// and what rounding makes of it shows where its samples come in another order.
Trained trained_uncompiled(const Configuration& configuration, const Dataset& data, Replica& replica,
                           std::int64_t count, double factor) {
  std::vector<std::int64_t> samples = first_samples(count, data);
  if (replica.type == at::kDouble) std::ranges::reverse(samples);
  Trained trained;
  if (!fits(replica.device, [&] { trained = trained_by(replica, data, &train_uncompiled, samples, factor); }))
    trained = trained_on_host(configuration, data, replica, samples, factor);
  return trained;
}

// How far off each is, and which buffers stayed as they were.
struct Errors {
  double gradient = 0.0;
  std::vector<double> buffers;
  std::vector<bool> stayed;
};

struct Pair {
  double compiled;
  double own;
};

// Of one side after the other is told how far off it is: a gradient takes as much memory as the parameters.
class Truth {
 public:
  Truth(const Configuration& configuration, const Dataset& data, Replica& replica, Trained exact, std::int64_t count)
      : data_(data),
        replica_(replica),
        count_(count),
        times_(replica.type == at::kDouble ? k_times_an_order : k_times_the_own),
        no_difference_(replica.type == at::kDouble ? k_in_float64 : k_roundings * unit_roundoff(replica.type)),
        of_a_buffer_(std::max(no_difference_, replica.autocast ? unit_roundoff(*replica.autocast) : 0.0)),
        before_(numbers_of(replica.model->buffers())),
        exact_(std::move(exact)),
        factor_(replica.autocast == at::kHalf ? k_in_float16 : 1.0) {
    const auto look = [&] { own_ = errors_of(trained_uncompiled(configuration, data, replica, count, factor_)); };
    const double least = replica.autocast == at::kHalf ? k_least_in_float16 : factor_;
    for (look(); !is_finite() && factor_ > least; look()) factor_ /= k_in_float16;
  }

  // Of the program's own gradient, and of what is compared with.
  [[nodiscard]] bool is_finite() const { return std::isfinite(own_.gradient); }

  // Of the native code that is in use. Throws what it throws where there is no memory for it.
  void check(const std::string& called) const {
    const Errors compiled =
        errors_of(trained_by(replica_, data_, &train_micro_batch, first_samples(count_, data_), factor_));
    check_within(called, "its gradient", {compiled.gradient, own_.gradient}, no_difference_);
    for (std::size_t i = 0; i < before_.size(); ++i) check_buffer(called, compiled, i);
  }

 private:
  [[nodiscard]] Errors errors_of(const Trained& trained) const {
    const UncountedMemory on_the_host;
    Errors errors{difference_of(trained.gradient, exact_.gradient).relative_l2, {}, {}};
    for (std::size_t i = 0; i < before_.size(); ++i) {
      const at::Tensor& buffer = trained.buffers[i].tensor;
      errors.buffers.push_back(difference_of(buffer, exact_.buffers[i].tensor).relative_l2);
      errors.stayed.push_back(at::equal(buffer, before_[i].tensor));
    }
    return errors;
  }

  void check_buffer(const std::string& called, const Errors& compiled, std::size_t i) const {
    const std::string which = "the buffer \"" + before_[i].name + "\"";
    if (!own_.stayed[i])
      check_within(called, which, {compiled.buffers[i], own_.buffers[i]}, of_a_buffer_);
    else if (!compiled.stayed[i])
      refuse(called, which + ", which stays as it is,", {1.0, 0.0});
  }

  void check_within(const std::string& called, const std::string& which, Pair errors, double no_difference) const {
    if (!is_within(errors.compiled, std::max(times_ * errors.own, no_difference))) refuse(called, which, errors);
  }

  [[noreturn]] static void refuse(const std::string& called, const std::string& which, Pair errors) {
    throw UserError(
        fmt::format("{}: {} of a micro-batch is {:.2g} off, and the program's own {:.2g}: it "
                    "is not used; compile the program anew, or leave it out",
                    called, which, errors.compiled, errors.own));
  }

  const Dataset& data_;
  Replica& replica_;
  std::int64_t count_;  // of samples
  double times_;
  double no_difference_;
  double of_a_buffer_;  // one of few numbers may by chance be nearer than the type that it is made in
  Gradient before_;
  Trained exact_;
  double factor_;  // of the loss: in float16 small gradients are lost, and large sums are infinite
  Errors own_;
};

// By as many samples as the device has memory for.
class Truths {
 public:
  Truths(const Configuration& configuration, const Dataset& data, Replica& replica)
      : configuration_(configuration), data_(data), replica_(replica), kept_(replica) {
    nudge(replica);
  }

  // A BatchNorm of one value per channel is the program's to refuse.
  [[nodiscard]] std::int64_t least() const { return replica_.has_batch_statistics ? 2 : 1; }

  // False where there is no memory for the least micro-batch.
  bool check(const std::string& called) {
    for (std::int64_t count = k_samples; count >= least(); --count) {
      if (fits(replica_.device, [&] { of(count).check(called); })) return true;
    }
    return false;
  }

 private:
  const Truth& of(std::int64_t count) {
    if (truth_ && count_ == count) return *truth_;
    truth_.reset();
    const Configuration wide = in_precision(Precision::float64, configuration_);
    const std::vector<std::int64_t> samples = first_samples(count, data_);
    const auto look = [&] {
      truth_.emplace(configuration_, data_, replica_, trained_on_host(wide, data_, replica_, samples), count);
    };
    look();
    if (!truth_->is_finite()) {
      kept_.restore();
      look();
    }
    count_ = count;
    return *truth_;
  }

  const Configuration& configuration_;
  const Dataset& data_;
  Replica& replica_;
  Kept kept_;
  std::optional<Truth> truth_;
  std::int64_t count_ = 0;
};

bool is_enough(std::size_t pairs, double seconds) {
  if (pairs < k_pairs) return pairs >= k_least_pairs && seconds >= k_long_seconds;
  return pairs >= k_most_pairs || seconds >= k_short_seconds;
}

class Timing {
 public:
  Timing(Replica& replica, const Dataset& data, std::int64_t size)
      : replica_(replica), samples_(first_samples(size, data)), batch_(batch_of(replica, data, samples_)) {}

  CompiledTimes run() const {
    const Kept kept(replica_);
    replica_.gradients.begin_step();
    seconds(&train_uncompiled);
    seconds(&train_micro_batch);
    std::vector<double> plain;
    std::vector<double> ratios;
    const comm::Stopwatch watch;
    while (!is_enough(plain.size(), watch.seconds())) {
      const bool compiled_first = plain.size() % 2 == 1;
      const double before = compiled_first ? seconds(&train_micro_batch) : 0.0;
      plain.push_back(seconds(&train_uncompiled));
      ratios.push_back((compiled_first ? before : seconds(&train_micro_batch)) / plain.back());
    }
    return {static_cast<double>(samples_.size()) / comm::median(plain), comm::median(ratios)};
  }

 private:
  double seconds(Training training) const {
    replica_.device.synchronize();
    const comm::Stopwatch watch;
    training(replica_, batch_, {replica_.seed, 1, samples_}, all_times(1.0, replica_));
    replica_.device.synchronize();
    return watch.seconds();
  }

  Replica& replica_;
  std::vector<std::int64_t> samples_;
  Batch batch_;
};

}  // namespace

void check_truth(const std::string& called, const Configuration& configuration, const Dataset& data, Replica& replica) {
  CompiledProgram& code = *compiled_of(*replica.model)->compiled;
  Truths truths(configuration, data, replica);
  const bool keeps = truths.check(called);
  bool recomputes = false;
  if (code.may_recompute()) {
    code.recompute(true);
    recomputes = truths.check(called + " (its variant that computes activations again)");
    code.recompute(false);
  }
  if (!keeps && !recomputes)
    throw DoesNotFitError(fmt::format(
        "{}: not even a micro-batch of {}, by which it is compared, fits on {}: {}leave it out, or train on devices "
        "with more memory",
        called, truths.least(), replica.device.name(),
        code.may_recompute() ? "" : "write memory.recompute = \"auto\", or "));
  if (!keeps) code.always_recompute();
  if (!recomputes) code.never_recompute();
}

CompiledTimes time_compiled(Replica& replica, const Dataset& data, std::int64_t micro_batch_size) {
  for (std::int64_t size = std::min(micro_batch_size, data.size()); size > 0; size = size / 2) {
    CompiledTimes times;
    if (fits(replica.device, [&] { times = Timing(replica, data, size).run(); })) return times;
  }
  return {};
}

}  // namespace onebatch
