// The kinds of data sets, each behind the one interface.
#pragma once

#include "trainer/data/dataset.hpp"

#include <filesystem>

namespace onebatch {

/// What values are computed in before they become `type`.
inline at::ScalarType filled_as(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

/// Pixels are divided by the largest pixel of the training images, so that inputs [N, 1, H, W] lie in [0, 1].
std::unique_ptr<Dataset> open_idx_dataset(const std::filesystem::path& folder, Split split, std::optional<std::int64_t> ignored);

/// Tensors of a file, by name; see DatasetConfiguration. Throws UserError that names the file and the tensor.
std::unique_ptr<Dataset> open_safetensors_dataset(const DatasetConfiguration& configuration, std::optional<std::int64_t> ignored);

/// Like torchvision's FakeData: inputs of mean 0 and variance 1 and labels, both a pure function of seed, split and index. Nothing is
/// stored.
std::unique_ptr<Dataset> make_synthetic_dataset(const DatasetConfiguration& configuration, Split split, std::uint64_t seed);

}  // namespace onebatch
