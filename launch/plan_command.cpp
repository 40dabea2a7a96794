#include "launch/plan_command.hpp"

#include "launch/report/plan_page.hpp"
#include "launch/utc_time.hpp"
#include "launch/written_files.hpp"
#include "trainer/base/error.hpp"
#include "trainer/documents/documents.hpp"
#include "trainer/io/folder.hpp"
#include "trainer/plan/elsewhere/all_reduce_model.hpp"
#include "trainer/plan/plan_cluster.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace onebatch::launch {
namespace {

namespace fs = std::filesystem;

// One cluster to plan for.
struct Candidate {
  std::string name;
  ClusterProfile profile;
  PlannerOptions options;
};

DeviceProfiles read_profiles(const fs::path& folder) {
  if (!fs::is_directory(folder))
    throw UserError("--profiles " + folder.string() +
                    ": there is no such folder; save profiles there with onebatch probe CONFIG --json FILE");
  std::vector<fs::path> files;
  for (const auto& entry : entries_of(folder)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  DeviceProfiles known;
  for (const fs::path& file : files)
    add_devices(known, parse_profile(read_file(file.string()), file.string()), file.stem().string());
  return known;
}

// All ranks reduce the same: the profiles say how much, or the user does, of what travels.
double gradient_bytes(const Arguments& arguments, const Configuration& configuration, const ClusterProfile& cluster) {
  double bytes = arguments.gradient_bytes;
  for (const RankProfile& rank : cluster.ranks) {
    if (arguments.gradient_bytes == 0.0) bytes = std::max(bytes, static_cast<double>(rank.memory.gradients_bytes));
  }
  if (arguments.gradient_bytes != 0.0) return bytes;
  const PrecisionConfiguration& precision = configuration.precision;
  const bool sixteen_bits = precision.parameters == Precision::bfloat16 || precision.parameters == Precision::float16;
  const bool summed_in_sixteen_bits = sixteen_bits && !precision.master_weights;
  const bool rounded =
      configuration.comm.reduce_dtype == ReduceType::bfloat16 && precision.parameters != Precision::float64;
  // In sixteen bits nothing travels but where the user asks for it.
  return summed_in_sixteen_bits ? bytes * 2.0 : rounded ? bytes / 2.0 : bytes;
}

Candidate make_candidate(const Arguments& arguments, const Configuration& configuration, const std::string& devices,
                         const DeviceProfiles& known, EventStream& events) {
  Candidate candidate{devices, make_cluster(parse_devices(devices), known), {}};
  // What a profile says of reducing was another cluster's.
  for (RankProfile& rank : candidate.profile.ranks) rank.reduce_seconds = 0.0;
  candidate.options = planner_options(candidate.profile, configuration);
  const double bytes = gradient_bytes(arguments, configuration, candidate.profile);
  if (bytes == 0.0)
    events.warn(
        "the profiles do not say how large the gradient is: its reduction is not counted; write --gradient-bytes");
  const Network network{.ranks_per_node = arguments.ranks_per_node,
                        .node_bytes_per_second = arguments.node_bandwidth * 1e9,
                        .bytes_per_second = arguments.bandwidth * 1e9,
                        .latency_seconds = arguments.latency * 1e-6};
  const double seconds = all_reduce_seconds(bytes, static_cast<std::int64_t>(candidate.profile.ranks.size()), network);
  if (configuration.comm.overlap == Switch::off)
    candidate.options.step_overhead_seconds += seconds;
  else
    candidate.options.overlapped_reduce_seconds = seconds;
  return candidate;
}

std::vector<Candidate> make_candidates(const Arguments& arguments, const Configuration& configuration,
                                       EventStream& events) {
  if (arguments.devices.empty()) {
    if (arguments.profile_file.empty())
      throw UserError("--global-batches needs --profile FILE or --devices LIST: it compares without measuring");
    Candidate candidate{
        arguments.profile_file, parse_profile(read_file(arguments.profile_file), arguments.profile_file), {}};
    candidate.options = planner_options(candidate.profile, configuration);
    return {candidate};
  }
  const DeviceProfiles known = read_profiles(arguments.profiles_folder);
  std::vector<Candidate> candidates;
  for (const std::string& devices : arguments.devices)
    candidates.push_back(make_candidate(arguments, configuration, devices, known, events));
  return candidates;
}

void write_page(const Arguments& arguments, const std::string& html, EventStream& events) {
  write_output(arguments.html_file, html);
  events.info("the page is in " + arguments.html_file);
}

std::string sweep(const Arguments& arguments, const std::vector<Candidate>& candidates, const BatchConfiguration& batch,
                  std::optional<std::int64_t> dataset_size, EventStream& events) {
  std::vector<std::int64_t> sizes = arguments.global_batches;
  if (sizes.empty()) sizes = {batch.global_batch_size};
  const Prices prices = parse_prices(arguments.prices);
  std::vector<SweepPoint> points;
  for (const Candidate& candidate : candidates) {
    const SweepRequest request{.devices = candidate.name,
                               .ranks = rank_costs(candidate.profile, batch),
                               .options = candidate.options,
                               .dataset_size = dataset_size.value_or(0),
                               .last_batch = batch.last_batch,
                               .prices = prices};
    for (const std::int64_t size : sizes) points.push_back(sweep_point(request, size));
  }
  events.info(sweep_table(points));
  if (!arguments.html_file.empty()) write_page(arguments, report::comparison_page(points, minute_now()), events);
  return to_json(points);
}

}  // namespace

std::string read_file(const std::string& file) {
  if (fs::is_directory(file)) throw UserError(file + " is a folder: write the name of a file");
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in)
    throw UserError("cannot read " + file +
                    (fs::exists(file) ? "" : ": there is no such file in " + fs::current_path().string()));
  return text.str();
}

void write_plan_page(const Arguments& arguments, const EpochPlan& plan, EventStream& events) {
  if (arguments.html_file.empty()) return;
  const std::string name = arguments.devices.empty() ? arguments.config_file : arguments.devices.front();
  write_page(arguments, report::plan_page(plan, name, minute_now()), events);
}

std::string plan_without_devices(const Arguments& arguments, const Configuration& configuration,
                                 std::optional<std::int64_t> dataset_size, EventStream& events) {
  const BatchConfiguration& batch = configuration.batch;
  const auto candidates = make_candidates(arguments, configuration, events);
  const bool comparison = candidates.size() > 1 || !arguments.global_batches.empty() || !arguments.prices.empty();
  if (comparison) return sweep(arguments, candidates, batch, dataset_size, events);
  const Candidate& candidate = candidates.front();
  const auto ranks = rank_costs(candidate.profile, batch);
  const EpochPlan plan = plan_epoch(batch.global_batch_size, dataset_size.value_or(batch.global_batch_size),
                                    batch.last_batch, ranks, candidate.options);
  events.send(event::PlanMade{plan});
  if (!dataset_size) events.info("the data is not here: the last, short batch of an epoch was not planned");
  write_plan_page(arguments, plan, events);
  return to_json(plan);
}

}  // namespace onebatch::launch
