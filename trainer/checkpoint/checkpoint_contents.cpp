#include "trainer/checkpoint/checkpoint_contents.hpp"

#include "trainer/io/durable_file.hpp"

namespace onebatch {
namespace {

namespace fs = std::filesystem;

CheckpointFile tensors_file(const char* name, const std::vector<SafetensorsView>& tensors,
                            const std::map<std::string, std::string>& metadata = {}) {
  return {name, [&tensors, metadata](const fs::path& file) { return write_safetensors(file, tensors, metadata); }};
}

}  // namespace

std::vector<CheckpointFile> files_of(const CheckpointContents& contents) {
  std::vector<CheckpointFile> files = {
      tensors_file(k_model_file, contents.model, {{"format", "pt"}}),
      tensors_file(k_optimizer_file, contents.optimizer),
      {k_state_file, [&contents](const fs::path& file) { return write_text(file, to_json(contents.state)); }},
  };
  if (!contents.buffers.empty()) files.push_back(tensors_file(k_buffers_file, contents.buffers));
  if (!contents.generators.empty()) files.push_back(tensors_file(k_generators_file, contents.generators));
  return files;
}

fs::path write_contents(const fs::path& checkpoints, const CheckpointContents& contents, const Retention& retention) {
  return write_checkpoint(checkpoints, contents.state.step, files_of(contents), retention);
}

}  // namespace onebatch
