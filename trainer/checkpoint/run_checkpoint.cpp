#include "trainer/checkpoint/run_checkpoint.hpp"

#include "trainer/base/error.hpp"
#include "trainer/base/fault_point.hpp"
#include "trainer/batch_norm/running_statistics.hpp"
#include "trainer/checkpoint/averaged_weights.hpp"
#include "trainer/checkpoint/by_rank.hpp"
#include "trainer/checkpoint/checkpoint_contents.hpp"
#include "trainer/checkpoint/named_checkpoint.hpp"
#include "trainer/device/agreement.hpp"
#include "trainer/device/generators.hpp"
#include "trainer/io/durable_file.hpp"
#include "trainer/io/named_tensors.hpp"
#include "trainer/io/tensor_file.hpp"
#include "trainer/replica/replica_state.hpp"

#include <fmt/format.h>

namespace onebatch {
namespace {

namespace fs = std::filesystem;

// The number in its name says which is the newest: of another step it would be taken before better ones.
void check_name(const fs::path& checkpoint, const RunState& state) {
  const std::string name = checkpoint.filename().string();
  const std::string right = fmt::format("step-{}", state.step);
  const bool has_number = name.starts_with("step-") && name.find_first_not_of("0123456789", 5) == std::string::npos;
  if (has_number && name != right)
    throw UserError(fmt::format("{} holds step {}: it was renamed or copied; name it {}, or move it away",
                                checkpoint.string(), state.step, right));
}

void say_refused(const std::vector<std::string>& refused, const std::string& chosen, EventStream& events) {
  std::string reasons;
  for (const auto& reason : refused) reasons += "\n  " + reason;
  events.fallback("the newest checkpoint" + reasons, chosen.empty() ? "beginning anew" : "resuming from " + chosen);
}

}  // namespace

fs::path choose_checkpoint(const fs::path& checkpoints, const fs::path& path, EventStream& events,
                           comm::Communicator& control) {
  std::string chosen;
  agree_on_rank_0(control, [&] {
    const auto found = path.empty() ? find_latest_checkpoint(checkpoints) : find_named_checkpoint(path);
    if (!found && !path.empty()) throw UserError(no_checkpoint_at(path));
    if (!found) return;
    const fs::path& folder = found->folder;  // as it was typed
    chosen = (folder.has_filename() ? folder : folder.parent_path()).string();
    if (!found->refused.empty()) say_refused(found->refused, chosen, events);
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

bool load_model(const fs::path& checkpoint, const Model& model, comm::Communicator& control, WeightsChoice weights) {
  std::int64_t averaged = 0;
  agree_on_rank_0(control, [&] {
    const auto state = model.state_dict();
    averaged = takes_averaged_weights(checkpoint, weights) ? 1 : 0;
    load_tensors(checkpoint / k_model_file, state, Extra::refused);
    if (averaged != 0) load_averaged_weights(checkpoint, state);
  });
  control.broadcast(&averaged, sizeof(averaged), 0);
  broadcast_tensors(state_of(model), control);
  return averaged != 0;
}

bool load_replica(const fs::path& checkpoint, Replica& replica, comm::Communicator& control) {
  load_model(checkpoint, *replica.model, control, WeightsChoice::raw);
  std::int64_t averaged = 0;
  agree_on_rank_0(control, [&] { averaged = load_optimizer(checkpoint, replica.optimizer) ? 1 : 0; });
  control.broadcast(&averaged, sizeof(averaged), 0);
  broadcast_tensors(replica.optimizer.state(), control);
  if (averaged == 0 && replica.optimizer.average() != nullptr) replica.optimizer.average()->begin();
  load_by_rank(checkpoint / k_buffers_file, replica.own_statistics(), Extra::ignored, control);
  const auto generators = generator_states(replica.device.device());
  if (load_by_rank(checkpoint / k_generators_file, generators, Extra::refused, control))
    set_generator_states(replica.device.device(), generators);
  return averaged != 0;
}

}  // namespace onebatch
