// How many samples there are, without opening them on any device.
#pragma once

#include "trainer/base/configuration.hpp"

#include <optional>

namespace onebatch::launch {

/// None where the data is not here.
std::optional<std::int64_t> dataset_size(const DatasetConfiguration& data);

}  // namespace onebatch::launch
