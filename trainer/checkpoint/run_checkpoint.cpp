#include "trainer/checkpoint/run_checkpoint.hpp"

#include "trainer/agreement.hpp"
#include "trainer/batch_norm/running_statistics.hpp"
#include "trainer/checkpoint/by_rank.hpp"
#include "trainer/checkpoint/durable_file.hpp"
#include "trainer/checkpoint/tensor_file.hpp"
#include "trainer/device/generators.hpp"
#include "trainer/error.hpp"
#include "trainer/fault_point.hpp"
#include "trainer/replica_state.hpp"

namespace onebatch {
namespace {

namespace fs = std::filesystem;

constexpr const char* k_model_file = "model.safetensors";
constexpr const char* k_optimizer_file = "optimizer.safetensors";
constexpr const char* k_buffers_file = "rank_buffers.safetensors";
constexpr const char* k_generators_file = "rank_generators.safetensors";
constexpr const char* k_state_file = "state.json";

// The number in its name says which is the newest: of another step it would be taken before better ones.
void check_name(const fs::path& checkpoint, const RunState& state) {
  const std::string name = checkpoint.filename().string();
  const std::string right = "step-" + std::to_string(state.step);
  const bool has_number = name.starts_with("step-") && name.find_first_not_of("0123456789", 5) == std::string::npos;
  if (has_number && name != right)
    throw UserError(checkpoint.string() + " holds step " + std::to_string(state.step) + ": it was renamed or copied; name it " + right +
                    ", or move it away");
}

}  // namespace

fs::path save_run(const fs::path& checkpoints, const RunState& state, const Replica& replica, double share, std::int64_t keep,
                  comm::Communicator& control) {
  const AveragedStatistics averaged(replica.own_statistics(), share, control);
  const auto own = gather_by_rank(averaged.own(), control);
  const auto generators = gather_by_rank(generator_states(replica.device.device()), control);
  fs::path folder;
  std::unique_ptr<PartialCheckpoint> partial;
  agree(control, [&] {
    fault_point("checkpoint", state.step);
    if (control.rank() != 0) return;
    std::vector<CheckpointFile> files = {{k_model_file,
                                          [&](const fs::path& file) {
                                            save_tensors(file, replica.model->state_dict(), {{"format", "pt"}});
                                          }},
                                         {k_optimizer_file, [&](const fs::path& file) { save_tensors(file, replica.optimizer.state()); }},
                                         {k_state_file, [&](const fs::path& file) { write_text(file, to_json(state)); }}};
    if (!own.empty()) files.push_back({k_buffers_file, [&](const fs::path& file) { save_tensors(file, own); }});
    files.push_back({k_generators_file, [&](const fs::path& file) { save_tensors(file, generators); }});
    partial = std::make_unique<PartialCheckpoint>(checkpoints, state.step, files);
  });
  // All have come this far: it counts. A rank that has lost a peer never publishes.
  agree_on_rank_0(control, [&] { folder = partial->publish(keep); });
  return folder;
}

fs::path choose_checkpoint(const fs::path& checkpoints, const fs::path& path, std::vector<std::string>& refused,
                           comm::Communicator& control) {
  std::string chosen;
  agree_on_rank_0(control, [&] {
    if (!path.empty() && fs::exists(path / k_state_file)) {
      check_checkpoint(path);
      chosen = path.string();
      return;
    }
    const fs::path folder = path.empty() ? checkpoints : (fs::exists(path / "checkpoints") ? path / "checkpoints" : path);
    const auto found = find_latest_checkpoint(folder);
    if (!found && !path.empty())
      throw UserError("no checkpoint at " + path.string() + ": give a step-N folder or the folder of a run that has saved one");
    if (!found) return;
    refused = found->refused;
    chosen = found->folder.string();
  });
  return comm::broadcast_text(control, chosen, 0);
}

RunState load_run_state(const fs::path& checkpoint, comm::Communicator& control) {
  std::string text;
  agree_on_rank_0(control, [&] {
    text = read_text(checkpoint / k_state_file);
    check_name(checkpoint, parse_run_state(text, (checkpoint / k_state_file).string()));
  });
  return parse_run_state(comm::broadcast_text(control, text, 0), (checkpoint / k_state_file).string());
}

void load_model(const fs::path& checkpoint, Replica& replica, comm::Communicator& control) {
  agree_on_rank_0(control, [&] { load_tensors(checkpoint / k_model_file, replica.model->state_dict(), Extra::refused); });
  broadcast_tensors(state_of(*replica.model), control);
}

void load_replica(const fs::path& checkpoint, Replica& replica, comm::Communicator& control) {
  load_model(checkpoint, replica, control);
  const auto optimizer = replica.optimizer.state();
  agree_on_rank_0(control, [&] { load_tensors(checkpoint / k_optimizer_file, optimizer, Extra::refused); });
  broadcast_tensors(optimizer, control);
  load_by_rank(checkpoint / k_buffers_file, replica.own_statistics(), Extra::ignored, control);
  const auto generators = generator_states(replica.device.device());
  if (load_by_rank(checkpoint / k_generators_file, generators, Extra::refused, control))
    set_generator_states(replica.device.device(), generators);
}

}  // namespace onebatch
