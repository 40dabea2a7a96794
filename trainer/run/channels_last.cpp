#include "trainer/run/channels_last.hpp"

#include "trainer/base/error.hpp"
#include "trainer/device/agreement.hpp"
#include "trainer/device/generators.hpp"
#include "trainer/device/host.hpp"
#include "trainer/graph/watched_calls.hpp"
#include "trainer/replica/replica.hpp"
#include "trainer/verify/difference.hpp"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace onebatch {
namespace {

struct Tolerance {
  Precision precision;
  double error;  // relative
};
constexpr Tolerance k_float64 = {Precision::float64, 1e-8};
constexpr Tolerance k_float32 = {Precision::float32,
                                 1e-3};  // a trace may have float32 in it, where float64 does not go

bool is_short(Precision precision) {
  return precision == Precision::bfloat16 || precision == Precision::float16;
}

// Where a GPU's matrix units take part; elsewhere channels_last costs as much as it wins.
bool is_worth_it(const PrecisionConfiguration& precision, const ComputeDevice& device) {
  return device.device().is_cuda() && (is_short(precision.compute) || precision.allow_tf32);
}

bool has_images_weights(const Model& model) {
  const auto parameters = model.parameters();
  return std::ranges::any_of(parameters, [](const NamedTensor& one) { return one.tensor.dim() == 4; });
}

bool is_convolution_over_images(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const std::string& name = op.operator_name().name;
  if (!name.starts_with("aten::conv") && !name.starts_with("aten::_conv")) return false;
  const auto given = torch::jit::last(stack, op.schema().arguments().size());
  return given.front().isTensor() && given.front().toTensor().dim() == 4;
}

// What a few samples come to.
struct Outcome {
  double loss = 0.0;
  Gradient gradient;
  bool convolves = false;  // over images
  std::string last_call;
};

struct Compared {
  bool convolves = false;
  std::string why_not;  // empty: both orders give the same
};

class Rehearsal {
 public:
  Rehearsal(const ChannelsLastParts& parts, const Tolerance& tolerance) : parts_(parts), tolerance_(tolerance) {
    for (std::int64_t i = 0; i < std::min<std::int64_t>(2, parts.data.size()); ++i) samples_.push_back(i);
  }

  /// Throws what the model throws whose images lie as they do.
  Compared compare() const {
    Outcome plain;
    run(Switch::off, plain);
    Compared compared;
    compared.convolves = plain.convolves;
    if (!plain.convolves) return compared;
    Outcome placed;
    try {
      run(Switch::on, placed);
      compared.why_not = difference(placed, plain);
    } catch (const std::exception& error) {
      compared.why_not = placed.last_call + ": " + first_line(error);
    }
    return compared;
  }

 private:
  static std::string first_line(const std::exception& error) {
    const std::string words = words_of(error);
    // TorchScript's interpreter sets an operator's words behind the code that called it.
    const std::size_t begin = words.rfind("RuntimeError: ");
    const std::string text = begin == std::string::npos ? words : words.substr(begin + 14);
    return text.substr(0, text.find('\n'));
  }

  Configuration configuration(Switch order) const {
    Configuration configuration = in_precision(tolerance_.precision, parts_.configuration);
    configuration.precision.channels_last = order;
    configuration.run.deterministic = Determinism::off;
    configuration.optimizer = OptimizerConfiguration();
    configuration.optimizer.kind = "sgd";
    return configuration;
  }

  // A step of training, and a forward of validation.
  void run(Switch order, Outcome& outcome) const {
    Host host;
    Replica replica(configuration(order), parts_.data, host);
    const auto watch = [&](const std::function<void()>& forward) {
      watch_calls(
          [&](const c10::OperatorHandle& op, torch::jit::Stack* stack) {
            outcome.last_call = op.operator_name().name;
            outcome.convolves = outcome.convolves || is_convolution_over_images(op, *stack);
            op.callBoxed(stack);
          },
          forward);
    };
    const Batch batch = replica.load(parts_.data, samples_).batch;
    const ForwardContext context = {replica.seed, 0, samples_};
    Replica::Forward made;
    watch([&] { made = replica.forward(batch, context); });
    outcome.last_call = "the backward";
    made.loss.backward();
    outcome.loss = made.loss.item<double>();
    const std::vector<at::Tensor>& views = replica.gradients.views();
    for (std::size_t i = 0; i < views.size(); ++i)
      outcome.gradient.push_back({replica.gradients.parameters()[i].name, as_numbers(views[i])});
    const at::NoGradGuard no_grad;
    replica.model->set_phase(Phase::evaluation);
    watch([&] { replica.forward(batch, context); });
  }

  std::string difference(const Outcome& ours, const Outcome& expected) const {
    if (parts_.examination.has(Trait::draws_unkeyed)) return {};  // and so two losses in any order
    const double relative = difference_of(ours.gradient, expected.gradient).relative_l2;
    const bool same =
        is_within(relative, tolerance_.error) &&
        is_within(std::abs(ours.loss - expected.loss), tolerance_.error * std::max(1.0, std::abs(expected.loss)));
    if (same || !std::isfinite(expected.loss) || !std::isfinite(norm_of(expected.gradient))) return {};
    return fmt::format("the gradient of a few samples differs by {:.1e} (relative)", relative);
  }

  const ChannelsLastParts& parts_;
  Tolerance tolerance_;
  std::vector<std::int64_t> samples_;
};

Compared rehearse(const ChannelsLastParts& parts) {
  const UnlimitedMemory on_the_host(MemoryBudget::install());
  const SavedGenerators generators;
  const at::AutoGradMode with_gradients(true);
  try {
    return Rehearsal(parts, k_float64).compare();
  } catch (const std::exception&) {
    if (parts.configuration.precision.parameters == Precision::float64) throw;
  }
  return Rehearsal(parts, k_float32).compare();
}

// Of rank 0, for all.
Switch choose(const ChannelsLastParts& parts, EventStream& events) {
  const bool asked = parts.configuration.precision.channels_last == Switch::on;
  Compared compared;
  try {
    compared = rehearse(parts);
  } catch (const std::exception& error) {
    if (asked) return Switch::on;  // what it cannot do on the host is no matter of this order
    events.info("precision.channels_last = \"auto\": off, since the model could not be tried on the host: " +
                words_of(error));
    return Switch::off;
  }
  if (compared.why_not.empty()) return compared.convolves ? Switch::on : Switch::off;
  if (asked)
    throw UserError(
        "precision.channels_last = true, but the model does not compute the same from images in that order (" +
        compared.why_not + "): write .reshape for .view in its forward and save it again, or leave the key out");
  events.info(
      "precision.channels_last = \"auto\": off, since the model does not compute the same from images in that order (" +
      compared.why_not + "); .reshape for .view in its forward may mend that");
  return Switch::off;
}

}  // namespace

Switch settle_channels_last(const ChannelsLastParts& parts, comm::Communicator& control, EventStream& events) {
  const PrecisionConfiguration& precision = parts.configuration.precision;
  const bool asked = precision.channels_last == Switch::on;
  if (precision.channels_last == Switch::off || (!asked && !is_worth_it(precision, parts.device))) return Switch::off;
  auto chosen = Switch::off;
  if (has_images_weights(parts.model)) {
    agree_on_rank_0(control, [&] { chosen = choose(parts, events); });
    control.broadcast(&chosen, sizeof(chosen), 0);
  }
  if (asked && chosen == Switch::off)
    events.fallback("images in the order of precision.channels_last = true",
                    "the ordinary order: the model has no convolutions over images");
  return chosen;
}

}  // namespace onebatch
