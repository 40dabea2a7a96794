// What the loop tells those that may have to save without it.
#include "trainer/checkpoint/averaged_weights.hpp"
#include "trainer/run/identity.hpp"
#include "trainer/run/loop.hpp"

namespace onebatch {

RunState TrainingLoop::run_state() const {
  RunState state = progress();
  state.global_batch_size = parts_.configuration.batch.global_batch_size;
  state.world_size = parts_.control.size();
  state.devices = devices_;
  if (has_plan()) state.plan = parts_.plans.book.epoch_plan();
  state.shared_names = shared_names(*parts_.replica.model);
  state.identity = run_identity(parts_.configuration, parts_.data, parts_.given_samples, *parts_.replica.model);
  return state;
}

RunState TrainingLoop::progress() const {
  RunState state;
  state.step = step_;
  state.position = order_->position();
  state.validations = validated_;
  state.shares = shares_;
  if (const LossScale& scale = parts_.replica.loss_scale; scale.is_active()) {
    state.loss_scale = scale.scale();
    state.loss_scale_steps = scale.steps_since_change();
  }
  if (const ReproducibleSum* sum = parts_.replica.gradients.reproducible()) state.bases = sum->bases();
  return state;
}

void TrainingLoop::watch_for_losses() {
  if (parts_.control.size() == 1 || parts_.options.run_dir.empty() || !goes_on()) return;
  const bool compared = parts_.configuration.comm.check_replicas_every_steps > 0;
  survivors_.emplace(SurvivorSave::Parts{
      .replica = parts_.replica,
      .options = parts_.options,
      .world = parts_.world,
      .state = run_state(),
      .retention = {parts_.configuration.checkpoint.keep, parts_.configuration.checkpoint.keep_every},
      .replicas = compared ? comm::Replicas::compared : comm::Replicas::never_compared,
      .generator_states = parts_.draws_unkeyed ? GeneratorStates::needed : GeneratorStates::optional});
}

void TrainingLoop::measuring(const std::function<void()>& work) {
  if (survivors_ && survivors_->in_use())
    return work();  // of a step whose update is done already, and which ends later
  begin_to_change("the ranks were being measured anew");
  work();
  if (survivors_) survivors_->end_of_use();
}

void TrainingLoop::begin_to_change(const char* what) {
  saver_.wait_for_copy();
  if (survivors_) survivors_->begin_update(what);
}

}  // namespace onebatch
