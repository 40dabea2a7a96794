#include "trainer/run/compiled_run.hpp"

#include "trainer/base/error.hpp"
#include "trainer/device/agreement.hpp"
#include "trainer/device/host.hpp"
#include "trainer/device/memory_budget.hpp"
#include "trainer/models/compiled_program.hpp"
#include "trainer/models/exported.hpp"
#include "trainer/replica/training_forward.hpp"
#include "trainer/verify/difference.hpp"
#include "trainer/verify/reference.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace onebatch {
namespace {

constexpr std::int64_t k_samples = 3;    // of the comparison
constexpr double k_nudge = 0x1p-8;       // of a parameter in it
constexpr double k_times_the_own = 2.0;  // what a compiled gradient may be off, of what the program's own is
constexpr double k_roundings = 16.0;     // that are no difference, whatever the own error

std::string refusal(const Configuration& configuration, const MicroBatchRunner& runner) {
  const Replica& replica = runner.replica();
  if (!replica.device.device().is_cpu()) return "runs on a CPU alone so far: leave it out on a GPU";
  if (configuration.run.deterministic == Determinism::bitwise)
    return "does not go with run.deterministic = \"bitwise\": leave one of them out";
  if (configuration.memory.recompute != Recompute::off)
    return "does not go with memory.recompute: a compiled program is not taken apart; leave one of them out";
  if (configuration.batch_norm.frozen)
    return "does not go with batch_norm.frozen = true: leave one of them out, or export the model in the mode that it "
           "is to train in";
  if (runner.apart() != nullptr)
    return "does not go with statistics over micro-batches: write batch_norm.mode = \"local\", or leave it out";
  if (replica.channels_last) return "does not go with precision.channels_last = true: leave one of them out";
  return "";
}

Gradient numbers_of(const std::vector<NamedTensor>& tensors) {
  Gradient numbers;
  for (const auto& [name, tensor] : tensors) numbers.push_back({name, as_numbers(tensor).clone()});
  return numbers;
}

Gradient gradient_of(Replica& replica) {
  Gradient gradient;
  for (std::size_t i = 0; i < replica.gradients.views().size(); ++i)
    gradient.push_back({replica.gradients.parameters()[i].name, as_numbers(replica.gradients.views()[i]).clone()});
  return gradient;
}

// Weights and buffers, which are afterwards as they were.
class Kept {
 public:
  explicit Kept(Replica& replica) : replica_(replica), tensors_(state_of(*replica.model)) {
    for (const NamedTensor& one : tensors_) before_.push_back(one.tensor.detach().clone());
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
    const at::Tensor steps =
        at::arange(one.tensor.numel(), one.tensor.options()).remainder(3).add_(1).view_as(one.tensor);
    at::Tensor(one.tensor).add_(steps, k_nudge);
  }
}

struct Trained {
  Gradient gradient;
  Gradient buffers;
};

using Forward = Replica::Forward (*)(Replica&, const Batch&, const ForwardContext&);

Replica::Forward uncompiled(Replica& replica, const Batch& batch, const ForwardContext& context) {
  return replica.forward(batch, context);
}

// What two micro-batches leave.
Trained trained_by(Replica& replica, const Dataset& data, Forward forward) {
  std::vector<std::int64_t> samples(static_cast<std::size_t>(std::min(k_samples, data.size())));
  std::iota(samples.begin(), samples.end(), std::int64_t{0});
  const Kept kept(replica);
  replica.gradients.begin_step();
  const auto [batch, weight] = replica.load(data, samples);
  for (const std::int64_t step : {1, 2}) forward(replica, batch, {replica.seed, step, samples}).loss.backward();
  return {gradient_of(replica), numbers_of(replica.model->buffers())};
}

// Of the same program with the same numbers.
Trained trained_exactly(const Configuration& configuration, const Dataset& data, Replica& replica) {
  Configuration wide = in_precision(Precision::float64, configuration);
  wide.run.deterministic = Determinism::off;
  const UnlimitedMemory on_the_host(MemoryBudget::install());
  Host host;
  Replica exact(wide, data, host);
  set_weights(state_of(*exact.model), state_of(*replica.model), weights_of(*replica.model));
  return trained_by(exact, data, &uncompiled);
}

class Truth {
 public:
  Truth(std::string folder, Replica& replica, const Dataset& data, Trained exact)
      : folder_(std::move(folder)),
        most_roundings_(k_roundings * unit_roundoff(replica.type)),
        before_(numbers_of(replica.model->buffers())),
        exact_(std::move(exact)),
        own_(trained_by(replica, data, &uncompiled)),
        compiled_(trained_by(replica, data, &training_forward)) {}

  void check() const {
    check_within("its gradient", difference_of(compiled_.gradient, exact_.gradient).relative_l2,
                 difference_of(own_.gradient, exact_.gradient).relative_l2);
    for (std::size_t i = 0; i < before_.size(); ++i) check_buffer(i);
  }

 private:
  void check_buffer(std::size_t i) const {
    const std::string called = "the buffer \"" + before_[i].name + "\"";
    if (at::equal(own_.buffers[i].tensor, before_[i].tensor)) {
      if (!at::equal(compiled_.buffers[i].tensor, before_[i].tensor))
        refuse(called + ", which stays as it is,", 1.0, 0.0);
      return;
    }
    const at::Tensor& exact = exact_.buffers[i].tensor;
    check_within(called, difference_of(compiled_.buffers[i].tensor, exact).relative_l2,
                 difference_of(own_.buffers[i].tensor, exact).relative_l2);
  }

  void check_within(const std::string& called, double compiled, double own) const {
    if (!is_within(compiled, std::max(k_times_the_own * own, most_roundings_))) refuse(called, compiled, own);
  }

  [[noreturn]] void refuse(const std::string& called, double compiled, double own) const {
    throw UserError(
        fmt::format("model.compiled = \"{}\": {} of a micro-batch is {:.2g} off, and the program's own {:.2g}: it "
                    "is not used; compile the program anew, or leave it out",
                    folder_, called, compiled, own));
  }

  std::string folder_;
  double most_roundings_;
  Gradient before_;
  Trained exact_;
  Trained own_;
  Trained compiled_;
};

void check_truth(const Configuration& configuration, const Dataset& data, Replica& replica) {
  const Kept kept(replica);
  nudge(replica);
  Trained exact = trained_exactly(configuration, data, replica);
  if (!std::isfinite(norm_of(exact.gradient))) {
    kept.restore();
    exact = trained_exactly(configuration, data, replica);
  }
  Truth(compiled_folder(configuration.model), replica, data, std::move(exact)).check();
}

}  // namespace

void use_compiled(const Configuration& configuration, const Dataset& data, const MicroBatchRunner& runner,
                  comm::Communicator& control, EventStream& events) {
  const std::string folder = compiled_folder(configuration.model);
  if (folder.empty()) return;
  Replica& replica = runner.replica();
  agree(control, [&] {
    if (const std::string why = refusal(configuration, runner); !why.empty())
      throw UserError("model.compiled = \"" + folder + "\" " + why);
    const CompiledPackage package = check_compiled({folder, configuration, TORCH_VERSION});
    train_compiled(*replica.model, std::make_unique<CompiledProgram>(package, *replica.model));
    check_truth(configuration, data, replica);
  });
  events.info(folder + " is a compiled program: it is code, and runs with your rights");
}

}  // namespace onebatch
