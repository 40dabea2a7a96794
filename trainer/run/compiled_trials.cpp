#include "trainer/run/compiled_trials.hpp"

#include "trainer/base/error.hpp"
#include "trainer/device/failed_backward.hpp"
#include "trainer/device/host.hpp"
#include "trainer/device/memory_budget.hpp"
#include "trainer/device/out_of_memory.hpp"
#include "trainer/models/compiled_program.hpp"
#include "trainer/replica/train_micro_batch.hpp"
#include "trainer/run/compiled_trial_parts.hpp"
#include "trainer/verify/difference.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

namespace onebatch {
namespace {

constexpr double k_in_float16 = 256.0;  // by which the loss is multiplied, or where that is too much divided
constexpr double k_least_in_float16 = 1.0 / 256.0;

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

struct Trained {
  Gradient gradient;
  Gradient buffers;
};

using Training = decltype(&train_uncompiled);

// What two micro-batches leave.
Trained trained_by(Replica& replica, const Dataset& data, Training training, const std::vector<std::int64_t>& samples,
                   double factor = 1.0) {
  const KeptWeights kept(replica);
  // What is neither zeroed nor written would show.
  replica.gradients.flat().fill_(std::numeric_limits<double>::quiet_NaN());
  replica.gradients.begin_step(Begin::unwritten);
  const Batch batch = batch_of(replica, data, samples);
  for (const std::int64_t step : {1, 2})
    training(replica, batch, {replica.seed, step, samples}, all_times(factor, replica));
  return {gradient_of(replica, factor), numbers_of(replica.model->buffers())};
}

// With images as the compiler lays them: convolutions round otherwise.
Replica::Forward train_channels_last(Replica& replica, const Batch& given, const ForwardContext& context,
                                     const MicroGradient& gradient) {
  Batch batch = given;
  for (at::Tensor& input : batch.inputs) {
    if (input.dim() == 4) input = input.contiguous(at::MemoryFormat::ChannelsLast);
  }
  return train_uncompiled(replica, batch, context, gradient);
}

Trained trained_on_host(const Configuration& configuration, const Dataset& data, Replica& replica,
                        const std::vector<std::int64_t>& samples, double factor = 1.0) {
  Trained trained;
  on_host(configuration, data, replica,
          [&](Replica& other) { trained = trained_by(other, data, &train_uncompiled, samples, factor); });
  return trained;
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
    double own = own_.gradient;
    if (!is_within(compiled.gradient, std::max(times_ * own, no_difference_)))
      own = std::max(own, own_in_other_layout());
    check_within(called, "its gradient", {compiled.gradient, own}, no_difference_);
    const bool shares = compiled_of(*replica_.model)->compiled->shares_statistics();
    for (std::size_t i = 0; i < before_.size(); ++i) {
      if (!shares)
        check_buffer(called, compiled, i);
      else if (!compiled.stayed[i])
        refuse(called, "the buffer \"" + before_[i].name + "\", which is not the code's to change,", {1.0, 0.0});
    }
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

  // What the program's rounding may be, where it can be run so; else 0.
  [[nodiscard]] double own_in_other_layout() const {
    double own = 0.0;
    const auto look = [&] {
      try {
        own = errors_of(trained_by(replica_, data_, &train_channels_last, first_samples(count_, data_), factor_))
                  .gradient;
      } catch (const c10::Error& error) {  // a view that such images have none of
        if (is_out_of_memory(error)) throw;
      }
    };
    return fits(replica_.device, look) && std::isfinite(own) ? own : 0.0;
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
  KeptWeights kept_;
  std::optional<Truth> truth_;
  std::int64_t count_ = 0;
};

}  // namespace

void check_truth(const std::string& called, const Configuration& configuration, const Dataset& data, Replica& replica) {
  CompiledProgram& code = *compiled_of(*replica.model)->compiled;
  Truths truths(configuration, data, replica);
  const bool keeps = truths.check(called);
  bool recomputes = code.may_recompute();
  code.recompute(recomputes);
  if (recomputes && !code.stands_back())
    recomputes = truths.check(called + " (its variant that computes activations again)");
  code.recompute(false);
  if (!keeps && !recomputes)
    throw DoesNotFitError(fmt::format(
        "{}: not even a micro-batch of {}, by which it is compared, fits on {}: {}leave it out, or train on devices "
        "with more memory",
        called, truths.least(), replica.device.name(),
        code.may_recompute() || code.shares_statistics() ? "" : "write memory.recompute = \"auto\", or "));
  if (!keeps) code.always_recompute();
  if (!recomputes) code.never_recompute();
}

}  // namespace onebatch
