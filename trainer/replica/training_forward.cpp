#include "trainer/replica/training_forward.hpp"

#include "trainer/base/error.hpp"
#include "trainer/models/compiled_program.hpp"

#include <ATen/ops/one_hot.h>

namespace onebatch {

Replica::Forward training_forward(Replica& replica, const Batch& batch, const ForwardContext& context) {
  const MayBeCompiled* const owner = compiled_of(*replica.model);
  // A BatchNorm of one value per channel is refused, which the program does and its native code does not.
  if (owner == nullptr || (replica.has_batch_statistics && context.samples.size() == 1))
    return replica.forward(batch, context);
  if (batch.weights.defined() && !replica.loss.is_the_models())
    throw UserError("model.compiled: a compiled loss takes no weights of labels: leave model.compiled out");
  std::vector<at::Tensor> inputs = batch.inputs;
  const bool are_classes = batch.targets.defined() && batch.targets.scalar_type() == at::kLong;
  const bool one_hot = are_classes && !replica.loss.is_the_models() && !replica.loss.is_classification();
  const at::Tensor targets =
      one_hot ? at::one_hot(batch.targets, replica.loss.num_classes()).to(replica.loss_type) : batch.targets;
  for (const at::Tensor& tensor : {targets, batch.weights}) {
    if (tensor.defined()) inputs.push_back(tensor);
  }
  owner->check_inputs(replica.loss.is_the_models() ? inputs : batch.inputs);
  const CompiledProgram::Made made = owner->compiled->run({inputs, context});
  return {made.loss.reshape({}), made.weight, {}};
}

}  // namespace onebatch
