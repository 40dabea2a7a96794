// A trained model taken home: a checkpoint's weights alone, or in the program that they were trained in. Free of
// LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace onebatch {

/// A checkpoint's model.safetensors, byte for byte, compared with its manifest as it is copied. `target` is whole or as
/// it was. Throws UserError where the file is not what the manifest says, std::system_error where it cannot be written.
void export_weights(const std::filesystem::path& checkpoint, const std::filesystem::path& target);

struct ExportedWeights {
  std::int64_t tensors = 0;
  std::int64_t converted = 0;  // had another type in the run than in the program
};

/// The program of torch.export in `program`, with the checkpoint's weights and persistent buffers, in the types that
/// it has them in; every other byte is the program's. `target` is whole or as it was. Throws UserError where the
/// program cannot be read or is not the one that was trained, std::system_error.
ExportedWeights export_program(const std::filesystem::path& checkpoint, const std::string& program,
                               const std::filesystem::path& target);

}  // namespace onebatch
