// A validation's metrics: taken of each micro-batch's outputs, summed over ranks, divided once.
#pragma once

#include "comm/communicator.hpp"
#include "trainer/replica/replica.hpp"
#include "trainer/step/chosen_metrics.hpp"
#include "trainer/step/class_metrics.hpp"
#include "trainer/step/number_metrics.hpp"

namespace onebatch {

/// What a micro-batch's outputs say, in host memory.
struct SeenOutputs {
  SeenLabels labels = {};
  SeenNumbers numbers = {};
  bool fit = true;               // numbers: the outputs have the targets' shape
  std::int64_t num_outputs = 0;  // classes: for each label
};

class ValidationMetrics {
 public:
  /// `loss` is referred to.
  ValidationMetrics(const ChosenMetrics& chosen, const Loss& loss, const Dataset& data);

  /// May throw an out-of-memory error; then nothing has changed.
  [[nodiscard]] SeenOutputs look_at(const Replica::Forward& made, const Batch& batch) const;
  void add(const SeenOutputs& seen);
  /// Those of all ranks. `result` has the loss already. Throws AgreedError where what was asked for cannot be had.
  /// Collective.
  void put_into(EvaluationResult& result, const std::vector<std::string>& class_names, comm::Communicator& control);

 private:
  [[nodiscard]] SeenLabels look_at_labels(const Loss::ByLabel& by_label, const Batch& batch) const;
  [[nodiscard]] SeenOutputs look_at_numbers(const at::Tensor& outputs, const Batch& batch) const;
  void check_num_outputs(comm::Communicator& control) const;
  void sum_classes(comm::Communicator& control);
  void sum_numbers(comm::Communicator& control);

  ChosenMetrics chosen_;
  const Loss& loss_;
  ClassMetrics classes_;
  NumberMetrics numbers_;
  bool by_position_ = false;  // numbers: of sequences each position is a row
  bool fit_ = true;
  std::int64_t num_outputs_ = 0;  // classes: the most that were seen
};

}  // namespace onebatch
