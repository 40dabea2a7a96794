// By what a configuration's micro-batches run.
#include "trainer/models/compiled_program.hpp"
#include "trainer/step/graph_step.hpp"

namespace onebatch {

std::unique_ptr<GraphStep> run_by_graph(const Configuration& configuration, const Replica& replica,
                                        AutogradGraph graph) {
  const BatchNormMode mode = replica.has_batch_statistics ? configuration.batch_norm.mode : BatchNormMode::local;
  return std::make_unique<GraphStep>(GraphOptions{mode, configuration.memory.segments, graph});
}

MicroBatchRunner choose_runner(const Configuration& configuration, Replica& replica) {
  if (!replica.shares_statistics && configuration.memory.recompute != Recompute::on) return MicroBatchRunner(replica);
  return MicroBatchRunner(replica, run_by_graph(configuration, replica, AutogradGraph::left_out));
}

bool recompute(MicroBatchRunner& runner) {
  if (const MayBeCompiled* owner = compiled_of(*runner.replica().model)) {
    if (!owner->compiled->may_recompute() || owner->compiled->recomputes()) return false;
    owner->compiled->recompute(true);
    return true;
  }
  if (runner.apart() != nullptr) return false;
  runner.take_apart(std::make_unique<GraphStep>(GraphOptions{}));
  return true;
}

void keep_activations(MicroBatchRunner& runner) {
  if (const MayBeCompiled* owner = compiled_of(*runner.replica().model)) owner->compiled->recompute(false);
}

bool recomputes(const MicroBatchRunner& runner) {
  if (const MayBeCompiled* owner = compiled_of(*runner.replica().model)) return owner->compiled->recomputes();
  return runner.apart() != nullptr && !runner.apart()->shares_statistics();
}

}  // namespace onebatch
