#include "trainer/checkpoint/checkpoint_contents.hpp"

#include "trainer/io/durable_file.hpp"

#include <utility>

namespace onebatch {
namespace {

namespace fs = std::filesystem;

TensorsWriter writer_of(const std::vector<SafetensorsView>& tensors) {
  return
      [&tensors](const fs::path& file, const Metadata& metadata) { return write_safetensors(file, tensors, metadata); };
}

}  // namespace

std::vector<CheckpointFile> checkpoint_files(const RunState& state, CheckpointWriters writers) {
  const auto tensors = [](const char* name, TensorsWriter write, const Metadata& metadata = {}) {
    return CheckpointFile{name,
                          [write = std::move(write), metadata](const fs::path& file) { return write(file, metadata); }};
  };
  std::vector<CheckpointFile> files = {
      tensors(k_model_file, std::move(writers.model), {{"format", "pt"}}),
      tensors(k_optimizer_file, std::move(writers.optimizer)),
      {k_state_file, [&state](const fs::path& file) { return write_text(file, to_json(state)); }},
  };
  if (writers.buffers) files.push_back(tensors(k_buffers_file, std::move(writers.buffers)));
  if (writers.generators) files.push_back(tensors(k_generators_file, std::move(writers.generators)));
  return files;
}

fs::path write_contents(const fs::path& checkpoints, const CheckpointContents& contents, const Retention& retention) {
  CheckpointWriters writers = {.model = writer_of(contents.model), .optimizer = writer_of(contents.optimizer)};
  if (!contents.buffers.empty()) writers.buffers = writer_of(contents.buffers);
  if (!contents.generators.empty()) writers.generators = writer_of(contents.generators);
  return write_checkpoint(checkpoints, contents.state.step, checkpoint_files(contents.state, std::move(writers)),
                          retention);
}

}  // namespace onebatch
