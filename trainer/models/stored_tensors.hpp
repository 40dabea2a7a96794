// Tensors that a file holds by name: safetensors, or a program of torch.export.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace onebatch {

struct StoredTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::optional<at::ScalarType> type;  // none: of one that is not known
  std::function<at::Tensor()> read;    // on the CPU. Throws UserError where its type is not known
};

/// In the file's order. Throws UserError that names the file where it is neither of the two, or damaged.
std::vector<StoredTensor> tensors_in(const std::string& file);

}  // namespace onebatch
