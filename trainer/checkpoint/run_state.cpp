#include "trainer/checkpoint/run_state.hpp"

#include "trainer/base/error.hpp"
#include "trainer/documents/documents.hpp"
#include "trainer/io/json_reader.hpp"

#include <fmt/format.h>

#include <limits>

namespace onebatch {
namespace {

using Json = nlohmann::json;

constexpr int k_format = 1;
constexpr std::int64_t k_most = std::int64_t{1} << 60;  // of what is counted
constexpr std::int64_t k_largest_base = 4096;           // a power of two beyond every gradient's

std::int64_t count(const JsonReader& reader, const char* key, std::int64_t least) {
  return reader.field(key).integer(least, k_most);
}

std::vector<std::string> read_devices(const JsonReader& list) {
  std::vector<std::string> devices;
  const std::size_t size = list.array_size("names");
  for (std::size_t i = 0; i < size; ++i) devices.push_back(list.item(i).text());
  return devices;
}

std::map<std::string, std::string> read_texts(const JsonReader& object) {
  if (!object.json().is_object()) object.fail("must be an object of texts");
  std::map<std::string, std::string> texts;
  for (const auto& [key, value] : object.json().items())
    texts[key] = JsonReader(value, object.place() + "." + key).text();
  return texts;
}

std::vector<std::int64_t> read_numbers(const JsonReader& list, std::int64_t least, std::int64_t largest) {
  std::vector<std::int64_t> numbers;
  const std::size_t size = list.array_size("whole numbers");
  for (std::size_t i = 0; i < size; ++i) numbers.push_back(list.item(i).integer(least, largest));
  return numbers;
}

Json watch_json(const WatchState& state) {
  Json json = {{"metric", state.metric}, {"greater_is_better", state.greater_is_better}, {"without", state.without}};
  if (state.best) json.update({{"best", *state.best}, {"best_step", state.best_step}});
  return json;
}

WatchState read_watch(const JsonReader& reader) {
  WatchState state;
  state.metric = reader.field("metric").text();
  state.greater_is_better = reader.field("greater_is_better").boolean();
  state.without = count(reader, "without", 0);
  if (!reader.has("best")) return state;
  state.best = reader.field("best").number_at_least(std::numeric_limits<double>::lowest());
  state.best_step = count(reader, "best_step", 0);
  return state;
}

Json validations_json(const ValidationState& state) {
  Json json = {{"step", state.step}};
  if (!state.early_stopping.metric.empty()) json["early_stopping"] = watch_json(state.early_stopping);
  if (!state.best.metric.empty()) json["best"] = watch_json(state.best);
  return json;
}

ValidationState read_validations(const JsonReader& reader) {
  ValidationState state;
  state.step = count(reader, "step", -1);
  if (reader.has("early_stopping")) state.early_stopping = read_watch(reader.field("early_stopping"));
  if (reader.has("best")) state.best = read_watch(reader.field("best"));
  return state;
}

}  // namespace

std::string to_json(const RunState& state) {
  Json json = {{"format", k_format},
               {"step", state.step},
               {"epoch", state.position.epoch},
               {"consumed_in_epoch", state.position.consumed_in_epoch},
               {"consumed_samples", state.position.consumed_samples},
               {"global_batch_size", state.global_batch_size},
               {"world_size", state.world_size},
               {"devices", state.devices},
               {"configuration", state.identity}};
  if (state.loss_scale > 0.0)
    json["loss_scale"] = {{"scale", state.loss_scale}, {"steps_since_change", state.loss_scale_steps}};
  if (!state.bases.empty()) json["bases"] = state.bases;
  if (!state.shares.empty()) json["shares"] = state.shares;
  if (state.validations) json["validations"] = validations_json(*state.validations);
  if (state.shared_names) json["shared_names"] = *state.shared_names;
  if (state.plan) json["plan"] = Json::parse(to_json(*state.plan));
  return json.dump(2) + "\n";
}

RunState parse_run_state(const std::string& text, const std::string& origin) {
  const Json json = JsonReader::parse(text, origin);
  const JsonReader reader(json, origin + ":");
  if (reader.field("format").json() != k_format)
    throw UserError(fmt::format("{}: format {}, this program reads {}", origin, json.at("format").dump(), k_format));
  RunState state;
  state.step = count(reader, "step", 0);
  state.position = {count(reader, "epoch", 0), count(reader, "consumed_in_epoch", 0),
                    count(reader, "consumed_samples", 0)};
  state.global_batch_size = count(reader, "global_batch_size", 1);
  state.world_size = static_cast<int>(reader.field("world_size").integer(1, INT32_MAX));
  state.devices = read_devices(reader.field("devices"));
  if (state.devices.size() != static_cast<std::size_t>(state.world_size))
    throw UserError(fmt::format("{} names {} devices of {} rank(s)", origin, state.devices.size(), state.world_size));
  state.identity = read_texts(reader.field("configuration"));
  if (reader.has("loss_scale")) {
    const JsonReader scale = reader.field("loss_scale");
    state.loss_scale = scale.field("scale").number_at_least(std::numeric_limits<double>::min());
    state.loss_scale_steps = count(scale, "steps_since_change", 0);
  }
  if (reader.has("bases")) state.bases = read_numbers(reader.field("bases"), -k_largest_base, k_largest_base);
  if (reader.has("shares")) state.shares = read_numbers(reader.field("shares"), 0, k_most);
  if (!state.shares.empty() && state.shares.size() != state.devices.size())
    throw UserError(fmt::format("{} has {} shares of {} rank(s)", origin, state.shares.size(), state.world_size));
  if (reader.has("validations")) state.validations = read_validations(reader.field("validations"));
  if (reader.has("shared_names")) state.shared_names = read_texts(reader.field("shared_names"));
  if (reader.has("plan")) state.plan = parse_epoch_plan(json.at("plan").dump(), origin + ": plan");
  return state;
}

}  // namespace onebatch
