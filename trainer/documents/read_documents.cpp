// Profiles and plans back from JSON: measured ones and ones written by hand.
#include "trainer/documents/documents.hpp"
#include "trainer/io/json_reader.hpp"

namespace onebatch {
namespace {

constexpr std::int64_t k_largest_size = std::int64_t{1} << 40;
constexpr std::int64_t k_most_bytes = INT64_MAX;  // a device without a limit

std::vector<TimedSize> read_times(const JsonReader& list) {
  std::vector<TimedSize> times;
  const std::size_t count = list.array_size("[size, seconds] pairs");
  for (std::size_t i = 0; i < count; ++i) {
    const JsonReader pair = list.item(i);
    if (pair.array_size("a size and its seconds") != 2) pair.fail("must be [size, seconds]");
    times.push_back({pair.item(0).integer(1, k_largest_size), pair.item(1).number_at_least(0.0)});
  }
  try {
    static_cast<void>(CostTable(times));
  } catch (const UserError& error) {
    list.fail(error.what());
  }
  return times;
}

std::vector<Trial> read_trials(const JsonReader& list) {
  std::vector<Trial> trials;
  const std::size_t count = list.array_size("trials");
  for (std::size_t i = 0; i < count; ++i) {
    const JsonReader one = list.item(i);
    trials.push_back({one.field("size").integer(1, k_largest_size), one.field("fits").boolean(),
                      one.field("out_of_memory").boolean(), one.field("peak_bytes").integer(0, k_most_bytes),
                      one.has("seconds") ? one.field("seconds").number_at_least(0.0) : 0.0});
  }
  return trials;
}

MemoryUse read_memory(const JsonReader& json) {
  MemoryUse memory;
  memory.parameters_bytes = json.field("parameters_bytes").integer(0, k_most_bytes);
  memory.buffers_bytes = json.field("buffers_bytes").integer(0, k_most_bytes);
  memory.gradients_bytes = json.field("gradients_bytes").integer(0, k_most_bytes);
  memory.optimizer_bytes = json.field("optimizer_bytes").integer(0, k_most_bytes);
  memory.communication_bytes = json.field("communication_bytes").integer(0, k_most_bytes);
  memory.workspace_bytes = json.field("workspace_bytes").integer(0, k_most_bytes);
  memory.activation_bytes_per_sample = json.field("activation_bytes_per_sample").number_at_least(0.0);
  if (json.has("kept_bytes_per_sample"))
    memory.kept_bytes_per_sample = json.field("kept_bytes_per_sample").number_at_least(0.0);
  return memory;
}

// `max_micro_batch` and `step_seconds` are needed; the rest is what a probe adds.
RankProfile read_rank(const JsonReader& json, int index) {
  RankProfile rank;
  rank.rank = index;
  const auto size_or = [&](const char* key, std::int64_t least, std::int64_t otherwise) {
    return json.has(key) ? json.field(key).integer(least, k_most_bytes) : otherwise;
  };
  rank.max_micro_batch = json.field("max_micro_batch").integer(0, k_largest_size);
  rank.step_seconds = read_times(json.field("step_seconds"));
  rank.min_micro_batch = size_or("min_micro_batch", 1, 1);
  rank.largest_micro_batch = size_or("largest_micro_batch", 0, rank.max_micro_batch);
  rank.memory_limit_bytes = size_or("memory_limit_bytes", 0, 0);
  rank.peak_bytes = size_or("peak_bytes", 0, 0);
  rank.resident_bytes = size_or("resident_bytes", 0, 0);
  if (json.has("memory")) rank.memory = read_memory(json.field("memory"));
  rank.room_bytes = size_or("room_bytes", 0, 0);
  if (json.has("kept_in_host")) rank.kept_in_host = json.field("kept_in_host").boolean();
  if (json.has("recomputes")) rank.recomputes = json.field("recomputes").boolean();
  if (json.has("from_cache")) rank.from_cache = json.field("from_cache").boolean();
  if (json.has("host")) rank.host = json.field("host").text();
  if (json.has("device")) rank.device = json.field("device").text();
  if (json.has("optimizer_seconds")) rank.optimizer_seconds = json.field("optimizer_seconds").number_at_least(0.0);
  if (json.has("reduce_seconds")) rank.reduce_seconds = json.field("reduce_seconds").number_at_least(0.0);
  if (json.has("exchange_seconds")) rank.exchange_seconds = json.field("exchange_seconds").number_at_least(0.0);
  if (json.has("lock_step")) rank.lock_step = json.field("lock_step").boolean();
  if (json.has("local_statistics")) rank.local_statistics = json.field("local_statistics").boolean();
  if (json.has("times_spread")) rank.times_spread = json.field("times_spread").number_at_least(0.0);
  if (json.has("jitter")) rank.jitter = json.field("jitter").number_at_least(0.0);
  if (json.has("trials")) rank.trials = read_trials(json.field("trials"));
  return rank;
}

RankPlan read_rank_plan(const JsonReader& json) {
  RankPlan rank;
  rank.rank = static_cast<int>(json.field("rank").integer(0, INT32_MAX));
  rank.device = json.field("device").text();
  rank.samples = json.field("samples").integer(0, k_largest_size);
  rank.predicted_seconds = json.field("predicted_seconds").number_at_least(0.0);
  rank.idle_fraction = json.field("idle_fraction").number_at_least(-1e-9);
  if (json.has("kept_in_host")) rank.kept_in_host = json.field("kept_in_host").boolean();
  if (json.has("recomputes")) rank.recomputes = json.field("recomputes").boolean();
  const JsonReader runs = json.field("micro_batches");
  std::int64_t sum = 0;
  const std::size_t count = runs.array_size("[size, count] pairs");
  for (std::size_t i = 0; i < count; ++i) {
    const JsonReader pair = runs.item(i);
    if (pair.array_size("a size and its count") != 2) pair.fail("must be [size, count]");
    // A size of 0: in lock-step a rank waits there for the others.
    const std::int64_t size = pair.item(0).integer(0, rank.samples);
    rank.micro_batches.push_back({size, pair.item(1).integer(1, size == 0 ? k_largest_size : rank.samples / size)});
    sum += size * rank.micro_batches.back().count;
    if (sum > rank.samples) break;
  }
  if (sum != rank.samples) json.fail("has micro_batches that do not add up to its samples");
  if (!json.has("micro_batch_seconds")) return rank;
  const JsonReader seconds = json.field("micro_batch_seconds");
  const std::size_t num_seconds = seconds.array_size("a time for each of micro_batches");
  if (num_seconds == 0) return rank;  // of a plan that was written without
  if (num_seconds != count) seconds.fail("must hold a time for each of micro_batches");
  for (std::size_t i = 0; i < count; ++i) rank.micro_batch_seconds.push_back(seconds.item(i).number_at_least(0.0));
  return rank;
}

Plan read_plan(const JsonReader& json) {
  Plan plan;
  plan.global_batch_size = json.field("global_batch_size").integer(1, k_largest_size);
  plan.predicted_step_seconds = json.field("predicted_step_seconds").number_at_least(0.0);
  if (json.has("equal_split_seconds"))
    plan.equal_split_seconds = json.field("equal_split_seconds").number_at_least(0.0);
  if (json.has("memory_split_seconds"))
    plan.memory_split_seconds = json.field("memory_split_seconds").number_at_least(0.0);
  const JsonReader ranks = json.field("ranks");
  std::int64_t sum = 0;
  const std::size_t count = ranks.array_size("ranks");
  for (std::size_t i = 0; i < count; ++i) {
    plan.ranks.push_back(read_rank_plan(ranks.item(i)));
    sum += plan.ranks.back().samples;
    if (sum > plan.global_batch_size) break;
  }
  if (sum != plan.global_batch_size) json.fail("has shares that do not add up to its global_batch_size");
  if (!json.has("notes")) return plan;
  const JsonReader notes = json.field("notes");
  const std::size_t note_count = notes.array_size("texts");
  for (std::size_t i = 0; i < note_count; ++i) plan.notes.push_back(notes.item(i).text());
  return plan;
}

}  // namespace

ClusterProfile parse_profile(std::string_view json, std::string_view origin) {
  const nlohmann::json document = JsonReader::parse(json, origin);
  const JsonReader ranks = JsonReader(document, std::string(origin) + ":").field("ranks");
  ClusterProfile profile;
  const std::size_t count = ranks.array_size("ranks");
  if (count == 0) ranks.fail("is empty: give one entry per rank");
  for (std::size_t i = 0; i < count; ++i) profile.ranks.push_back(read_rank(ranks.item(i), static_cast<int>(i)));
  return profile;
}

EpochPlan parse_epoch_plan(std::string_view json, std::string_view origin) {
  const nlohmann::json document = JsonReader::parse(json, origin);
  const JsonReader reader(document, std::string(origin) + ":");
  EpochPlan plan{read_plan(reader), std::nullopt};
  if (reader.has("last_batch")) plan.last = read_plan(reader.field("last_batch"));
  return plan;
}

}  // namespace onebatch
