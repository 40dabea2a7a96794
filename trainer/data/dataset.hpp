// A data set: numbered samples that can be gathered into a batch. Samples stay in plain host memory, outside the device's budget.
#pragma once

#include "trainer/configuration.hpp"

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>

namespace onebatch {

/// inputs [N, ...sample shape], targets [N] (int64 class indices, or the inputs' type for regression). On the CPU.
struct Batch {
  at::Tensor inputs;
  at::Tensor targets;
};

class Dataset {
 public:
  Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;
  virtual ~Dataset() = default;

  [[nodiscard]] virtual std::int64_t size() const = 0;
  [[nodiscard]] virtual std::vector<std::int64_t> sample_shape() const = 0;
  [[nodiscard]] virtual std::int64_t num_classes() const = 0;
  /// The samples at `indices`, in that order; inputs of type `type` (float32 or float64). The values depend on the index alone.
  [[nodiscard]] virtual Batch gather(std::span<const std::int64_t> indices, at::ScalarType type) const = 0;
};

enum class Split { train, validation };

/// Throws UserError that names the file, what is wrong with it and what was expected.
std::unique_ptr<Dataset> open_dataset(const DatasetConfiguration& configuration, Split split, std::uint64_t seed);

}  // namespace onebatch
