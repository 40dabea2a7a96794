#include "trainer/replica/training_forward.hpp"

#include "trainer/base/error.hpp"
#include "trainer/models/compiled_program.hpp"

namespace onebatch {

Replica::Forward training_forward(Replica& replica, const Batch& batch, const ForwardContext& context) {
  const CompiledProgram* const compiled = compiled_of(*replica.model);
  // A BatchNorm of one value per channel is refused, which the program does and its native code does not.
  if (compiled == nullptr || (replica.has_batch_statistics && context.samples.size() == 1))
    return replica.forward(batch, context);
  if (batch.weights.defined() && !replica.loss.is_the_models())
    throw UserError("model.compiled: a compiled loss takes no weights of labels: leave model.compiled out");
  std::vector<at::Tensor> inputs = batch.inputs;
  for (const at::Tensor& tensor : {batch.targets, batch.weights}) {
    if (tensor.defined()) inputs.push_back(tensor);
  }
  const CompiledProgram::Made made = compiled->run({inputs, context});
  return {made.loss, made.weight, {}};
}

}  // namespace onebatch
