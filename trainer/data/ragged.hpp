// Sequences that lie one after another without padding: sequence i is the values offsets[i] … offsets[i + 1] − 1. No
// LibTorch here.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace onebatch {

/// What is wrong with a file's offsets, [sequences + 1] from 0 up, of sequences that hold a value at least; none:
/// nothing.
std::optional<std::string> wrong_offsets(std::span<const std::int64_t> offsets);

}  // namespace onebatch
