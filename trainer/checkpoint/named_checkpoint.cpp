#include "trainer/checkpoint/named_checkpoint.hpp"

#include "trainer/checkpoint/checkpoint_contents.hpp"
#include "trainer/io/durable_file.hpp"

namespace onebatch {

namespace fs = std::filesystem;

std::optional<FoundCheckpoint> find_named_checkpoint(const fs::path& path) {
  const fs::path state = path / k_state_file;
  if (!fs::exists(state)) return find_latest_checkpoint(fs::exists(path / "checkpoints") ? path / "checkpoints" : path);
  check_checkpoint(path);
  return FoundCheckpoint{path, parse_run_state(read_text(state), state.string()).step, {}};
}

std::string no_checkpoint_at(const fs::path& path) {
  return "no checkpoint at " + path.string() + ": give a step-N folder or the folder of a run that has saved one";
}

}  // namespace onebatch
