// What a model returns for some samples, without a loss: to predict with.
#pragma once

#include "trainer/data/dataset.hpp"
#include "trainer/models/model.hpp"

#include <optional>

namespace onebatch {

class ModelOutputs {
 public:
  /// The model lies on the device, has its weights, and is in evaluation from now on. Both are referred to.
  ModelOutputs(const Configuration& configuration, Model& model, c10::Device device);

  /// [samples, ...] each, on the device. Throws UserError where it returns none, or some that are not a row for each
  /// sample, or of a type that no file holds; may throw an out-of-memory error.
  [[nodiscard]] std::vector<at::Tensor> of(const Dataset& data, std::span<const std::int64_t> samples) const;

 private:
  [[nodiscard]] Batch load(const Dataset& data, std::span<const std::int64_t> samples) const;

  const Configuration& configuration_;
  Model& model_;
  c10::Device device_;
  at::ScalarType type_;  // the parameters'
  bool computes_its_loss_;
};

}  // namespace onebatch
