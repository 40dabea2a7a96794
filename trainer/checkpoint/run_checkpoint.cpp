#include "trainer/checkpoint/run_checkpoint.hpp"

#include "trainer/agreement.hpp"
#include "trainer/batch_norm/running_statistics.hpp"
#include "trainer/checkpoint/durable_file.hpp"
#include "trainer/checkpoint/rank_generators.hpp"
#include "trainer/checkpoint/tensor_file.hpp"
#include "trainer/documents/documents.hpp"
#include "trainer/documents/json_reader.hpp"
#include "trainer/error.hpp"
#include "trainer/fault_point.hpp"
#include "trainer/replica_state.hpp"

#include <ATen/ops/empty.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

namespace onebatch {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int k_format = 1;
constexpr std::int64_t k_most = std::int64_t{1} << 60;  // of what is counted
constexpr const char* k_model_file = "model.safetensors";
constexpr const char* k_optimizer_file = "optimizer.safetensors";
constexpr const char* k_buffers_file = "rank_buffers.safetensors";
constexpr const char* k_generators_file = "rank_generators.safetensors";
constexpr const char* k_state_file = "state.json";

std::string state_text(const RunState& state) {
  Json json = {{"format", k_format},
               {"step", state.step},
               {"epoch", state.position.epoch},
               {"consumed_in_epoch", state.position.consumed_in_epoch},
               {"consumed_samples", state.position.consumed_samples},
               {"global_batch_size", state.global_batch_size},
               {"world_size", state.world_size},
               {"devices", state.devices},
               {"configuration", state.identity}};
  if (state.loss_scale > 0.0) json["loss_scale"] = {{"scale", state.loss_scale}, {"steps_since_change", state.loss_scale_steps}};
  if (!state.bases.empty()) json["bases"] = state.bases;
  if (state.plan) json["plan"] = Json::parse(to_json(*state.plan));
  return json.dump(2) + "\n";
}

RunState parse_state(const std::string& text, const std::string& origin) {
  try {
    const Json json = Json::parse(text);
    if (json.at("format") != k_format)
      throw UserError(origin + ": format " + json.at("format").dump() + ", this program reads " + std::to_string(k_format));
    const JsonReader reader(json, origin + ":");
    const auto count = [&](const char* key, std::int64_t least) { return reader.field(key).integer(least, k_most); };
    RunState state;
    state.step = count("step", 0);
    state.position = {count("epoch", 0), count("consumed_in_epoch", 0), count("consumed_samples", 0)};
    state.global_batch_size = count("global_batch_size", 1);
    state.world_size = static_cast<int>(reader.field("world_size").integer(1, INT32_MAX));
    state.devices = json.at("devices").get<std::vector<std::string>>();
    if (state.devices.size() != static_cast<std::size_t>(state.world_size))
      throw UserError(origin + " names " + std::to_string(state.devices.size()) + " devices of " + std::to_string(state.world_size) +
                      " rank(s)");
    state.identity = json.at("configuration").get<std::map<std::string, std::string>>();
    if (json.contains("loss_scale")) {
      state.loss_scale = json.at("loss_scale").at("scale").get<double>();
      state.loss_scale_steps = json.at("loss_scale").at("steps_since_change").get<std::int64_t>();
    }
    if (json.contains("bases")) state.bases = json.at("bases").get<std::vector<std::int64_t>>();
    if (json.contains("plan")) state.plan = parse_epoch_plan(json.at("plan").dump(), origin);
    return state;
  } catch (const Json::exception& error) {
    throw UserError(origin + " is no state of a run: " + error.what());
  }
}

std::string read_text(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) throw UserError("cannot read " + file.string());
  return text.str();
}

std::string rank_name(int rank, const std::string& name) {
  return "rank" + std::to_string(rank) + "." + name;
}

// What every rank has its own of, on all ranks, named by rank.
std::vector<NamedTensor> gather_statistics(const std::vector<NamedTensor>& own, comm::Communicator& control) {
  std::vector<NamedTensor> gathered;
  for (const auto& [name, tensor] : own) {
    const auto bytes = host_bytes(tensor);
    std::vector<std::byte> all(bytes.size() * static_cast<std::size_t>(control.size()));
    control.all_gather(bytes.data(), all.data(), bytes.size());
    for (int rank = 0; rank < control.size(); ++rank) {
      const at::Tensor one = at::empty(tensor.sizes(), tensor.options().device(at::kCPU));
      copy_from_bytes(one, std::span(all).subspan(static_cast<std::size_t>(rank) * bytes.size(), bytes.size()));
      gathered.push_back({rank_name(rank, name), one});
    }
  }
  return gathered;
}

bool has_all(const fs::path& file, const std::vector<NamedTensor>& gathered, int world_size) {
  std::set<std::string> names;
  for (const SafetensorsEntry& entry : read_safetensors_header(file).entries) names.insert(entry.name);
  const bool has_more_ranks =
      std::ranges::any_of(names, [&](const std::string& name) { return name.starts_with(rank_name(world_size, "")); });
  return !has_more_ranks && std::ranges::all_of(gathered, [&](const NamedTensor& one) { return names.contains(one.name); });
}

// The ranks' own running statistics were saved beside the average; they are for a world of the same size only.
void load_own_statistics(const fs::path& checkpoint, Replica& replica, comm::Communicator& control) {
  const auto own = replica.own_statistics();
  if (own.empty()) return;
  std::int64_t have = 0;
  auto gathered = gather_statistics(own, control);
  agree_on_rank_0(control, [&] {
    const fs::path file = checkpoint / k_buffers_file;
    if (!fs::exists(file) || !has_all(file, gathered, control.size())) return;
    load_tensors(file, gathered, Extra::ignored);
    have = 1;
  });
  control.broadcast(&have, sizeof(have), 0);
  if (have == 0) return;
  broadcast_tensors(gathered, control);
  for (const auto& [name, tensor] : own) {
    for (const auto& saved : gathered) {
      if (saved.name == rank_name(control.rank(), name)) copy_from_bytes(tensor, host_bytes(saved.tensor));
    }
  }
}

}  // namespace

fs::path save_run(const fs::path& checkpoints, const RunState& state, const Replica& replica, double share, std::int64_t keep,
                  comm::Communicator& control) {
  const AveragedStatistics averaged(replica.own_statistics(), share, control);
  const auto own = gather_statistics(averaged.own(), control);
  const auto generators = gather_generators(replica, control);
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
                                         {k_state_file, [&](const fs::path& file) { write_text(file, state_text(state)); }}};
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
    parse_state(text, (checkpoint / k_state_file).string());
  });
  return parse_state(comm::broadcast_text(control, text, 0), (checkpoint / k_state_file).string());
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
  load_own_statistics(checkpoint, replica, control);
  load_generators(checkpoint / k_generators_file, replica, control);
}

}  // namespace onebatch
