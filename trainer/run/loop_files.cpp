// What a run has to do with files beside its checkpoints: room for them, classes of data that are files, and those that
// were skipped.
#include "trainer/base/error.hpp"
#include "trainer/io/durable_file.hpp"
#include "trainer/probe/memory_use.hpp"
#include "trainer/run/loop.hpp"
#include "trainer/run/skipped_files.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace onebatch {

// Now rather than after hours: a disk that cannot hold a single checkpoint.
void TrainingLoop::check_room() const {
  const std::filesystem::path& folder = parts_.options.run_dir;
  std::error_code error;
  const auto space = std::filesystem::space(folder, error);
  if (folder.empty() || error || step_ >= total_steps_) return;
  std::uintmax_t needed = 0;
  for (const auto& tensors :
       {parts_.replica.model->parameters(), parts_.replica.model->buffers(), parts_.replica.optimizer.state()}) {
    for (const NamedTensor& one : tensors) needed += one.tensor.nbytes();
  }
  if (space.available >= needed) return;
  throw UserError(
      fmt::format("{}: {} are free there, and a checkpoint takes {}: free some, or write another "
                  "run.output_dir",
                  folder.string(), amount(static_cast<double>(space.available)), amount(static_cast<double>(needed))));
}

// Beside the checkpoints, in the order of the model's outputs.
void TrainingLoop::save_class_names() const {
  const std::vector<std::string> names = parts_.data.class_names();
  if (names.empty() || parts_.options.run_dir.empty()) return;
  const auto text = nlohmann::json(names).dump(1, ' ', false, nlohmann::json::error_handler_t::replace);
  write_text_atomically(parts_.options.run_dir / "classes.json", text + "\n");
}

// Any rank may have read them; rank 0 speaks. Collective.
void TrainingLoop::say_skipped(const Dataset& data) {
  name_skipped_files(data, skipped_files_, parts_.control, parts_.events);
}

// Collective.
void TrainingLoop::count_skipped() {
  say_skipped(parts_.data);
  if (parts_.validation != nullptr) say_skipped(*parts_.validation);
  count_skipped_files(skipped_files_, "counted for nothing", parts_.events);
}

}  // namespace onebatch
