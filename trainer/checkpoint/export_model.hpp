// A trained model taken home: a checkpoint's weights alone, or in the program that they were trained in. Free of
// LibTorch.
#pragma once

#include "trainer/base/weights_choice.hpp"

#include <cstdint>
#include <filesystem>
#include <string>

namespace onebatch {

/// Which weights an export has.
enum class HasWeights { raw, averaged };

/// A checkpoint's model.safetensors, byte for byte, compared with its manifest as it is copied; or with the averaged
/// weights, in their type, in the place of those that were trained. `target` is whole or as it was. Throws UserError
/// where the file is not what the manifest says or averaged weights are asked for and not there, std::system_error
/// where it cannot be written.
HasWeights export_weights(const std::filesystem::path& checkpoint, const std::filesystem::path& target,
                          WeightsChoice choice = WeightsChoice::automatic);

struct ExportedWeights {
  HasWeights weights = HasWeights::raw;
  std::int64_t tensors = 0;
  std::int64_t converted = 0;  // had another type in the run than in the program
};

/// The program of torch.export in `program`, with the checkpoint's weights and persistent buffers, in the types that
/// it has them in; every other byte is the program's. `target` is whole or as it was. Throws UserError where the
/// program cannot be read or is not the one that was trained, std::system_error.
ExportedWeights export_program(const std::filesystem::path& checkpoint, const std::string& program,
                               const std::filesystem::path& target, WeightsChoice choice = WeightsChoice::automatic);

}  // namespace onebatch
