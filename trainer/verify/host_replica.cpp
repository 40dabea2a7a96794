#include "trainer/verify/host_replica.hpp"

#include "trainer/device/host.hpp"
#include "trainer/io/named_tensors.hpp"
#include "trainer/step/accumulation.hpp"
#include "trainer/step/graph_step.hpp"

namespace onebatch {
namespace {

// The run's mode of BatchNorm. One rank alone has no lock-step: its rounds are the batch, or are not the large batch's
// anyway.
Configuration in_float64(Configuration configuration) {
  configuration = in_precision(Precision::float64, configuration);
  if (configuration.batch_norm.mode == BatchNormMode::sync) configuration.batch_norm.mode = BatchNormMode::exact;
  configuration.run.deterministic = Determinism::off;
  return configuration;
}

}  // namespace

struct HostReplica::Parts {
  explicit Parts(const ReferenceParts& parts)
      : configuration(in_float64(parts.configuration)),
        replica(configuration, parts.data, host),
        runner(choose_runner(configuration, replica)) {}
  Configuration configuration;
  Host host;
  Replica replica;
  MicroBatchRunner runner;
};

HostReplica::HostReplica(const ReferenceParts& parts, const Weights& weights)
    : parts_(parts), own_(std::make_unique<Parts>(parts)) {
  if (parts.taken_apart) recompute(own_->runner);
  set_weights(state_of(*own_->replica.model), state_of(*parts.replica.model), weights);
}

HostReplica::~HostReplica() = default;

void HostReplica::take_parameters(const Weights& weights) {
  set_weights(own_->replica.model->parameters(), parts_.replica.model->parameters(), weights);
}

Gradient HostReplica::gradient_of(const std::vector<std::int64_t>& samples, const Plan& plan, std::int64_t step) {
  Replica& replica = own_->replica;
  std::vector<MicroBatchRun> runs;
  for (const RankPlan& rank : plan.ranks) runs.insert(runs.end(), rank.micro_batches.begin(), rank.micro_batches.end());
  replica.gradients.begin_step();
  const LocalSums sums = accumulate_gradient(own_->runner, parts_.data, samples, runs, step);
  replica.gradients.complete_sum();
  replica.gradients.finish_sum(sums.weight.value() != 0.0 ? sums.weight.value() : 1.0);
  Gradient gradient;
  for (std::size_t i = 0; i < replica.gradients.views().size(); ++i)
    gradient.push_back({replica.gradients.parameters()[i].name, as_numbers(replica.gradients.views()[i])});
  return gradient;
}

}  // namespace onebatch
