// A gradient computed without the trainer's step, on purpose: what that is compared with.
#pragma once

#include "trainer/replica/replica.hpp"
#include "trainer/verify/difference.hpp"

namespace onebatch {

/// Samples that go through the model at once.
using Group = std::vector<std::int64_t>;

/// Where weights come from, and what a batch and its loss are. The replica is only read.
struct ReferenceParts {
  const Configuration& configuration;
  const Dataset& data;
  const Replica& replica;
  bool taken_apart;  // its micro-batches run segment by segment
};

enum class BatchNorms { as_configured, frozen };

/// In what a reference computes.
struct Arithmetic {
  c10::Device device{c10::kCPU};
  // Of all the model's numbers; none: the run's own, autocast and loss scale included.
  std::optional<at::ScalarType> type;
  BatchNorms batch_norms = BatchNorms::as_configured;
};

/// Parameters and buffers of a model, as bytes.
using Weights = std::vector<std::vector<std::byte>>;
Weights weights_of(const Model& model);
/// Puts weights, which have the types of `source`, into tensors of any.
void set_weights(const std::vector<NamedTensor>& target, const std::vector<NamedTensor>& source,
                 const Weights& weights);

struct BatchSums {
  double loss = 0.0;
  double weight = 0.0;
};

/// A model of its own, with forward and backward as one writes them by hand. What a forward changes in it stays.
class ReferenceModel {
 public:
  /// With these weights, which are the run's. May throw an out-of-memory error.
  ReferenceModel(const ReferenceParts& parts, const Arithmetic& in, const Weights& weights);

  /// The parameters of `weights`; buffers stay as they are.
  void take_parameters(const Weights& weights);
  /// Forward and backward of these samples at once: adds to the gradient. `expected`: how many samples will have been
  /// added in the end.
  BatchSums add(const Group& samples, std::int64_t step, std::size_t expected);
  /// What was added, divided by `weight`; begins anew.
  Gradient take_gradient(double weight, std::size_t expected);
  /// Each group at once, summed and divided once.
  struct Answer {
    Gradient gradient;
    BatchSums sums;
    std::vector<std::string> not_reached;  // parameters that no backward has reached
  };
  Answer gradient_of(const std::vector<Group>& groups, std::int64_t step);
  /// In evaluation's phase, without gradients.
  BatchSums evaluate(const Dataset& data, const Group& samples, std::int64_t step, Loss::Correct& correct);
  /// What the model returns for them in training's phase, without a loss and without gradients.
  std::vector<at::Tensor> forward(const Group& samples, std::int64_t step);

  [[nodiscard]] Model& model() { return *model_; }
  [[nodiscard]] c10::Device device() const { return in_.device; }

 private:
  struct Inputs {
    std::vector<at::Tensor> tensors;
    Batch batch;
  };
  [[nodiscard]] Inputs load(const Dataset& data, const Group& samples) const;
  std::vector<at::Tensor> run(const Inputs& inputs, const Group& samples, std::int64_t step);
  [[nodiscard]] at::Tensor loss_of(const std::vector<at::Tensor>& returned, const Batch& batch) const;
  [[nodiscard]] double weight_of(const std::vector<at::Tensor>& returned, const Batch& batch) const;

  ReferenceParts parts_;
  Arithmetic in_;
  at::ScalarType type_;
  at::ScalarType loss_type_;
  double scale_;
  std::unique_ptr<Model> model_;
  std::vector<std::string> not_reached_;
  std::int64_t longest_ = 0;  // of the sequences that are padded alike; 0: of those that are loaded together
};

}  // namespace onebatch
