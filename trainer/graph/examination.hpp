// What a model does in training that its inputs and parameters alone do not tell: random numbers that are no sample's,
// state that it changes behind the optimizer's back, statistics of its batch.
#pragma once

#include <string>
#include <vector>

namespace onebatch {

enum class Trait {
  draws_unkeyed,      // random numbers that are others under another plan
  changes_parameter,  // in the forward: replicas that see other samples come apart
  keeps_data,         // a buffer that is not BatchNorm's, computed from the micro-batch
  counts_forwards,    // a buffer that changes with every forward, whatever the samples: a step has as many as the plan
                      // has micro-batches
  hidden_state,       // an attribute that is no buffer and is another after the forward: in no checkpoint
  sparse_gradient,
  reads_data,  // a number or condition of samples' values, which decides for all that are in a micro-batch with them
  validates_by_batch,  // BatchNorm without running statistics: each micro-batch of a validation is normalised by itself
};

/// One trait of a model, and where it was seen.
struct Finding {
  Trait trait = Trait::draws_unkeyed;
  std::string op;      // "aten::rand_like"; empty where no operator was seen to do it
  std::string layer;   // the last one whose parameter or buffer was used before: "layer1.0.conv1"; empty: none
  std::string tensor;  // the parameter, buffer or attribute; empty: none

  bool operator==(const Finding&) const = default;
  /// "aten::rand_like, after layer1.0.conv1".
  [[nodiscard]] std::string place() const;
};

struct Examination {
  bool examined = false;  // else `why_not` says what the forward failed with, and nothing is known
  std::string why_not;
  std::vector<Finding> findings;
  std::vector<std::string> batch_norm_layers;      // whose calls take the statistics of their batch
  std::vector<std::string> batch_norm_statistics;  // buffers that those calls update: running means and variances, and
                                                   // their modules' counters

  [[nodiscard]] bool has(Trait trait) const;
  /// As text, for the other ranks. Tabs and line ends in a name become spaces.
  [[nodiscard]] std::string to_text() const;
  /// Throws std::invalid_argument where it is no such text.
  static Examination from_text(const std::string& text);
};

/// What makes a training with this model wrong whatever the plan, with what to write instead, a line each; empty:
/// nothing. `once_per_step`: buffers that count forwards are changed once per step (exact BatchNorm).
enum class CountersRun { once_per_micro_batch, once_per_step };
std::vector<std::string> reasons_not_to_train(const Examination& examination, CountersRun counters);

}  // namespace onebatch
