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
#include <fmt/format.h>
#include <torch/version.h>

#include <numeric>

namespace onebatch {
namespace {

constexpr std::int64_t k_samples = 3;    // of the comparison
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

Gradient gradient_of(Replica& replica) {
  Gradient gradient;
  for (std::size_t i = 0; i < replica.gradients.views().size(); ++i)
    gradient.push_back({replica.gradients.parameters()[i].name, as_numbers(replica.gradients.views()[i]).clone()});
  return gradient;
}

// What a forward changes in the model is as it was afterwards.
class Kept {
 public:
  explicit Kept(Replica& replica) : replica_(replica) {
    for (const NamedTensor& buffer : replica.model->buffers()) before_.push_back(buffer.tensor.clone());
  }
  ~Kept() {
    const at::NoGradGuard no_grad;
    const auto buffers = replica_.model->buffers();
    for (std::size_t i = 0; i < buffers.size(); ++i) at::Tensor(buffers[i].tensor).copy_(before_[i]);
    replica_.gradients.begin_step();
  }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

 private:
  Replica& replica_;
  std::vector<at::Tensor> before_;
};

using Forward = Replica::Forward (*)(Replica&, const Batch&, const ForwardContext&);

Replica::Forward uncompiled(Replica& replica, const Batch& batch, const ForwardContext& context) {
  return replica.forward(batch, context);
}

Gradient made_by(Replica& replica, const Dataset& data, Forward forward) {
  std::vector<std::int64_t> samples(static_cast<std::size_t>(std::min(k_samples, data.size())));
  std::iota(samples.begin(), samples.end(), std::int64_t{0});
  const Kept kept(replica);
  replica.gradients.begin_step();
  const auto [batch, weight] = replica.load(data, samples);
  forward(replica, batch, {replica.seed, 1, samples}).loss.backward();
  return gradient_of(replica);
}

// Of the same program with the same numbers.
Gradient exact_gradient(const Configuration& configuration, const Dataset& data, Replica& replica) {
  Configuration wide = in_precision(Precision::float64, configuration);
  wide.run.deterministic = Determinism::off;
  const UnlimitedMemory on_the_host(MemoryBudget::install());
  Host host;
  Replica exact(wide, data, host);
  set_weights(state_of(*exact.model), state_of(*replica.model), weights_of(*replica.model));
  return made_by(exact, data, &uncompiled);
}

void check_truth(const Configuration& configuration, const Dataset& data, Replica& replica) {
  const Gradient exact = exact_gradient(configuration, data, replica);
  const double own = difference_of(made_by(replica, data, &uncompiled), exact).relative_l2;
  const double compiled = difference_of(made_by(replica, data, &training_forward), exact).relative_l2;
  const double most = std::max(k_times_the_own * own, k_roundings * unit_roundoff(replica.type));
  if (is_within(compiled, most)) return;
  throw UserError(
      fmt::format("model.compiled = \"{}\": its gradient of {} samples is {:.2g} off, and the program's own {:.2g}: it "
                  "is not used; compile the program anew, or leave it out",
                  compiled_folder(configuration.model), std::min(k_samples, data.size()), compiled, own));
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
