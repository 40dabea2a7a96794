#include "trainer/run/compiled_run.hpp"

#include "comm/long_work.hpp"
#include "trainer/base/error.hpp"
#include "trainer/device/agreement.hpp"
#include "trainer/models/class_dim.hpp"
#include "trainer/models/compiled_program.hpp"
#include "trainer/models/exported.hpp"
#include "trainer/run/compiled_by_run.hpp"
#include "trainer/run/compiled_trials.hpp"

#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <optional>

namespace onebatch {

// Older ones have no call that lets native code read the model's own tensors.
constexpr bool k_runs_compiled_programs = TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR > 207;

std::string why_not_here(const Configuration& configuration, const MicroBatchRunner& runner) {
  const Replica& replica = runner.replica();
  if (!k_runs_compiled_programs)
    return "needs LibTorch 2.8 or newer, and this is " TORCH_VERSION ": leave it out, or build with the pinned one";
  if (configuration.run.deterministic == Determinism::bitwise)
    return "does not go with run.deterministic = \"bitwise\": leave one of them out";
  if (configuration.memory.recompute == Recompute::on)
    return "does not go with a number of segments: write memory.recompute = \"auto\", or leave one of them out";
  if (configuration.batch_norm.frozen)
    return "does not go with batch_norm.frozen = true: leave one of them out, or export the model in the mode that it "
           "is to train in";
  if (replica.channels_last) return "does not go with precision.channels_last = true: leave one of them out";
  return "";
}

Configuration as_compiled(const RunToCompile& run) {
  Configuration due = run.configuration;
  const Replica& replica = run.runner.replica();
  const Loss& loss = replica.loss;
  if (!replica.shares_statistics) due.batch_norm.mode = BatchNormMode::local;  // there is none to share any
  if (loss.is_classification()) k_class_dim(due.loss) = loss.class_dim();
  return due;
}

CompiledFor compiled_for(const ComputeDevice& device) {
  return {device.compute_capability(), device.device().is_cuda() ? device.device().index() : 0};
}

void train_by(const CompiledPackage& package, const RunToCompile& run, const std::string& called) {
  Replica& replica = run.runner.replica();
  train_compiled(*replica.model, std::make_unique<CompiledProgram>(package, *replica.model, replica.device.device()));
  check_truth(called, run.configuration, run.data, replica);
}

Evaluating settle_evaluation(const RunToCompile& run, std::int64_t trial_size) {
  if (!validates(run.configuration)) return {};
  Replica& replica = run.runner.replica();
  CompiledProgram& code = *compiled_of(*replica.model)->compiled;
  CompiledTimes times;
  std::string mine = code.why_it_does_not_evaluate();
  if (mine.empty() && !code.evaluates()) mine = "it was left out (--no-evaluation)";
  if (mine.empty()) {
    const comm::LongWork working(run.control, "comparing what validates");
    try {
      mine = why_not_evaluate(run.configuration, run.data, replica);
      if (mine.empty() && trial_size > 0) times = time_evaluation(replica, run.data, trial_size);
    } catch (const std::exception& error) {
      mine = words_of(error);
      mine = mine.substr(0, mine.find('\n'));
    }
  }
  const std::vector<std::string> reasons = comm::all_gather_text(run.control, mine);
  std::array<double, 2> rates = {times.samples_per_second / times.ratio, times.samples_per_second};
  run.control.all_reduce(rates.data(), rates.size(), comm::ScalarType::float64, comm::ReduceOp::sum);
  const std::string ratio = rates[0] > 0.0 ? fmt::format("{:.2f} of the time uncompiled", rates[1] / rates[0]) : "";
  const auto first = std::ranges::find_if(reasons, [](const std::string& one) { return !one.empty(); });
  if (first == reasons.end() && rates[0] >= rates[1]) return {true, ratio.empty() ? "" : "; validation takes " + ratio};
  code.never_evaluate();
  const auto rank = first - reasons.begin();
  const std::string on_rank = rank > 0 ? fmt::format("rank {}: ", rank) : "";
  const std::string why = first != reasons.end() ? on_rank + *first : "native code takes " + ratio;
  return {false, "; validation runs uncompiled: " + why};
}

namespace {

void use_what_is_wished(const RunToCompile& run) {
  if (compiles_by_itself(run.configuration.model)) return use_what_the_run_compiles(run);
  const std::string folder = compiled_folder(run.configuration.model);
  if (folder.empty()) return;
  const std::string called = "model.compiled = \"" + folder + "\"";
  Replica& replica = run.runner.replica();
  std::optional<CompiledPackage> package;
  agree(run.control, [&] {
    const comm::LongWork working(run.control, "comparing the compiled program");
    if (const std::string why = why_not_here(run.configuration, run.runner); !why.empty())
      throw UserError(called + " " + why);
    const Configuration due = as_compiled(run);
    package = check_compiled({folder, due, TORCH_VERSION, compiled_for(replica.device)});
    train_by(*package, run, called);
  });
  const Evaluating evaluating = settle_evaluation(run, 0);
  run.events.info(folder + " is a compiled program: it is code, and runs with your rights" + evaluating.said);
  if (!evaluating.natively && !package->evaluation.empty())
    run.events.fallback("validation by native code", "by the program uncompiled");
}

}  // namespace

void use_compiled(const RunToCompile& run) {
  use_what_is_wished(run);
  const Replica& replica = run.runner.replica();
  // With exact BatchNorm the program does in any case.
  if (compiled_of(*replica.model) != nullptr && replica.shares_statistics &&
      run.configuration.batch_norm.mode == BatchNormMode::exact)
    run.configuration.memory.recompute = Recompute::automatic;
}

}  // namespace onebatch
