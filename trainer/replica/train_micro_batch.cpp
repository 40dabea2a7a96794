#include "trainer/replica/training_forward.hpp"

#include "trainer/base/error.hpp"
#include "trainer/images/image_mixing.hpp"
#include "trainer/models/compiled_program.hpp"

#include <ATen/ops/one_hot.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>

namespace onebatch {
namespace {

// Where images are mixed a compiled loss takes two labels of each, also of those that are not, as of the probe.
Batch with_two_labels(Batch batch, at::ScalarType type) {
  const at::Tensor own = batch.weights.defined() ? batch.weights : at::ones({batch.targets.size(0)}, type);
  batch.weights = at::stack({own, at::zeros_like(own)}, 1);
  batch.targets = at::stack({batch.targets, batch.targets}, 1);
  return batch;
}

}  // namespace

Replica::Forward training_forward(Replica& replica, const Batch& given, const ForwardContext& context) {
  const MayBeCompiled* const owner = compiled_of(*replica.model);
  // A BatchNorm of one value per channel is refused, which the program does and its native code does not.
  if (owner == nullptr || (replica.has_batch_statistics && context.samples.size() == 1))
    return replica.forward(given, context);
  const bool is_unmixed = is_mixing(replica.augment) && given.targets.dim() == 1;
  const Batch batch = is_unmixed ? with_two_labels(given, replica.loss_type) : given;
  if (batch.weights.defined() && !replica.loss.is_the_models() && !replica.loss.is_classification())
    throw UserError("model.compiled: a compiled loss of squared errors takes no weights of labels: leave it out");
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
