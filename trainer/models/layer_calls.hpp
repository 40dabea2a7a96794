// What operators read of a model's tensors. How a weight is used tells what layer it is of, and so what PyTorch would
// have begun it with.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace onebatch {

struct ReadTensor {
  std::string argument;  // the operator's name for it: "weight"; of a list, the list's
  at::Tensor tensor;     // the model's own
  bool transposed = false;
};

/// One call of an operator that takes tensors of the model.
struct LayerCall {
  std::string name;  // "aten::linear"
  std::vector<ReadTensor> reads;
  std::optional<std::int64_t> padding_index = std::nullopt;  // of an embedding that has one

  /// None where the operator takes none of the model under that name.
  [[nodiscard]] const ReadTensor* find(const std::string& argument) const {
    for (const ReadTensor& read : reads) {
      if (read.argument == argument) return &read;
    }
    return nullptr;
  }
};

/// Whether an operator hands its tensor on as it is, or transposed where that is a matrix and its dimensions change
/// places: `swaps_dimensions` says of those whose arguments tell.
enum class HandsOn { no, as_it_is, transposed, by_arguments };
HandsOn hands_on(const std::string& name);
/// Of transpose's two dimensions, or permute's two, of a matrix.
bool swaps_dimensions(const std::vector<std::int64_t>& dimensions);

}  // namespace onebatch
