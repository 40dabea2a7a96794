// What an operator's schema and its arguments tell of one call: random numbers, statistics of a batch, numbers and
// shapes made of values.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace onebatch {

using Arguments = at::ArrayRef<c10::IValue>;

/// The argument of that name; null where the operator has none.
const c10::IValue* argument_named(const c10::OperatorHandle& op, Arguments given, const char* name);

/// A list of tensors, some of which may be none.
bool is_optional_tensors(const c10::IValue& value);

/// Writes to its first argument without reading it.
bool overwrites(const c10::OperatorHandle& op);

/// Draws from a generator, not by sample: what is a dropout alone counts where it drops (training, and a probability
/// above zero).
bool draws_unkeyed(const c10::OperatorHandle& op, Arguments given);

/// A batch normalisation with the statistics of its batch.
bool takes_batch_statistics(const c10::OperatorHandle& op, Arguments given);

/// Its gradient is a sparse tensor (aten::embedding with sparse = true).
bool has_sparse_gradient(const c10::OperatorHandle& op, Arguments given);

/// Makes a number, which leaves the world of tensors, of a tensor's values.
bool reads_number(const c10::OperatorHandle& op);

/// What it makes has a shape that depends on values.
bool makes_shape(const c10::OperatorHandle& op, Arguments given);

}  // namespace onebatch
