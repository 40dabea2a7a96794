// Weights as PyTorch's modules begin them, for models whose weights came with a file.
#pragma once

#include "trainer/models/model.hpp"

#include <set>

namespace onebatch {

/// Tensors of a model, whatever their names.
using TensorSet = std::set<const c10::TensorImpl*>;

/// Gives those tensors new values, each drawn from the seed and its name alone: matrices of Linear and weights of
/// convolutions U(-1/sqrt(fan_in), 1/sqrt(fan_in)) (kaiming_uniform with a = sqrt(5)) with their biases, embeddings
/// N(0, 1), norms 1 and 0, running statistics 0, 1 and no batches, recurrent layers U(-1/sqrt(hidden), 1/sqrt(hidden)).
/// A buffer that is no running statistic stays. Throws UserError that names every parameter of which cannot be known
/// what layer it is of. A model that makes its own weights keeps what it has made.
void reinitialize(Model& model, const TensorSet& tensors, std::uint64_t seed);

}  // namespace onebatch
