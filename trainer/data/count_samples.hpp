// How many samples there are, without opening them on any device. Free of LibTorch.
#pragma once

#include "trainer/base/configuration.hpp"

#include <optional>

namespace onebatch {

/// None where the data is not here.
std::optional<std::int64_t> count_samples(const DatasetConfiguration& data);
/// Those that train.
std::optional<std::int64_t> count_samples(const DataConfiguration& data);

}  // namespace onebatch
