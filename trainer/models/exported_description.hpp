// What an exported program takes, returns and holds, for people. Free of LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace onebatch {

struct DescribedTensor {
  std::string name;                // as the forward names it
  std::string type;                // as PyTorch writes it: "float32"; empty: the program does not say
  std::vector<std::string> sizes;  // "32", or the name of a size that may be any in its range: "batch"
};

struct DescribedSize {
  std::string name;  // "batch", "size1"
  std::int64_t least = 0;
  std::optional<std::int64_t> most;  // none: no end was given
};

enum class DrawnBy { sample, generator };  // the same whatever the plan; from a rank's own generator

struct DescribedRandomness {
  std::string op;  // "aten::dropout"
  std::int64_t calls = 0;
  DrawnBy drawn_by = DrawnBy::sample;
};

struct ProgramDescription {
  std::vector<DescribedTensor> inputs;
  std::vector<DescribedTensor> outputs;  // the tensors among them
  std::string output;                    // that the loss takes where model.output names none
  std::vector<DescribedSize> sizes;
  std::string type;  // of most of its parameters
  std::int64_t num_parameters = 0;
  std::int64_t num_elements = 0;  // of all parameters
  std::int64_t num_trained_elements = 0;
  std::vector<std::string> batch_norm_layers;
  std::vector<DescribedRandomness> random;
  std::vector<std::string> changed_buffers;  // by every forward, beside BatchNorm's statistics
};

/// Throws UserError, which names the file, where it cannot be trained.
ProgramDescription describe_exported(const std::string& file);

}  // namespace onebatch
