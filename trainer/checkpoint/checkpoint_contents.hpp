// All that a checkpoint holds, in host memory, and how it becomes files: of one process, with no other. No LibTorch
// here.
#pragma once

#include "trainer/checkpoint/checkpoint_folder.hpp"
#include "trainer/checkpoint/run_state.hpp"

#include <map>

namespace onebatch {

inline constexpr const char* k_model_file = "model.safetensors";
inline constexpr const char* k_optimizer_file = "optimizer.safetensors";
inline constexpr const char* k_buffers_file = "rank_buffers.safetensors";
inline constexpr const char* k_generators_file = "rank_generators.safetensors";
inline constexpr const char* k_state_file = "state.json";

using Metadata = std::map<std::string, std::string>;
/// Writes one file's tensors, with this metadata.
using TensorsWriter = std::function<Checksum(const std::filesystem::path& file, const Metadata& metadata)>;

struct CheckpointWriters {
  TensorsWriter model = {};
  TensorsWriter optimizer = {};
  TensorsWriter buffers = {};     // empty: no such file
  TensorsWriter generators = {};  // empty: no such file
};

/// The files below step-N, in the order in which they are written. `state` is borrowed.
std::vector<CheckpointFile> checkpoint_files(const RunState& state, CheckpointWriters writers);

/// The tensors' bytes are borrowed: they must stay as they are until the checkpoint is written.
struct CheckpointContents {
  RunState state;
  std::vector<SafetensorsView> model;       // the names of its state_dict
  std::vector<SafetensorsView> optimizer;   // the names of Optimizer::state
  std::vector<SafetensorsView> buffers;     // each rank's own running statistics, "rank0.name"; none: no such file
  std::vector<SafetensorsView> generators;  // each rank's random generators, "rank0.name"; none: no such file
};

/// Writes `checkpoints`/step-N and publishes it, N being the state's step. Returns the folder. Throws std::system_error
/// naming the file; the older checkpoints stand then. Not collective.
std::filesystem::path write_contents(const std::filesystem::path& checkpoints, const CheckpointContents& contents,
                                     const Retention& retention);

}  // namespace onebatch
