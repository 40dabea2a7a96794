// One forward and backward of an exported program, for a comparison with the model that it was made of. Free of
// LibTorch.
#pragma once

#include "trainer/base/configuration.hpp"

#include <filesystem>
#include <string>

namespace onebatch {

enum class CheckedPhase { training, evaluation };
/// Whose gradient is taken: the sum of the squares of all floating-point outputs that require one, or the loss's sum
/// that the program itself returns, beside its weight.
enum class CheckedLoss { squares, programs_own };

struct ProgramCheck {
  std::string program;
  std::filesystem::path inputs;  // safetensors, in the order of their names: "000", "001", …
  CheckedPhase phase = CheckedPhase::training;
  CheckedLoss loss = CheckedLoss::squares;
  std::filesystem::path save;  // safetensors
  DeviceChoice device = DeviceChoice::cpu;
};

/// Runs the program once in float64, by the code that trains it, and writes in float64 its tensors
/// "output.0", "output.1", …, "gradient.NAME" of every parameter that has got one and, as they are after the forward,
/// "buffer.NAME"; what has several names is there under each. Random layers draw for the seed 0 and samples 0, 1, ….
/// Throws UserError where file and inputs do not fit each other or there is no such device, std::system_error where
/// nothing can be written.
void check_exported(const ProgramCheck& check);

}  // namespace onebatch
