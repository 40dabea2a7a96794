#include "launch/data_command.hpp"

#include "launch/config_loader.hpp"
#include "launch/plan_command.hpp"
#include "launch/png_file.hpp"
#include "launch/standard_streams.hpp"
#include "launch/written_files.hpp"
#include "trainer/base/error.hpp"
#include "trainer/documents/documents.hpp"
#include "trainer/plan/plan_cluster.hpp"
#include "trainer/run/built_in_kinds.hpp"
#include "trainer/run/describe_data.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace onebatch::launch {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t k_most_classes_shown = 12;

// What a rank's device computes of a step, and what reading its samples takes beside that.
struct Wait {
  std::string device;
  std::int64_t samples = 0;
  double step_seconds = 0.0;
  double reading_seconds = 0.0;  // with the quickest number of threads
  double wait_seconds = 0.0;     // of a step, where reading goes on while the device computes
};

Configuration configuration_of(const Arguments& arguments) {
  register_built_in_kinds();
  const LoadedConfig loaded =
      load_config(read_file(arguments.config_file), arguments.config_file, arguments.assignments);
  auto mistakes = loaded.mistakes;
  for (auto& mistake : check_contradictions(loaded, arguments.config_file, 0)) mistakes.push_back(std::move(mistake));
  if (!mistakes.empty()) throw UserError("the configuration cannot be used:\n" + mistakes_text(mistakes));
  return loaded.configuration;
}

double quickest(const DataReport& report) {
  return std::ranges::max(report.reading, {}, &ReadingSpeed::samples_per_second).samples_per_second;
}

std::vector<Wait> waits_of(const DataReport& report, const Configuration& configuration, const std::string& file) {
  const ClusterProfile profile = parse_profile(read_file(file), file);
  const BatchConfiguration& batch = configuration.batch;
  const EpochPlan plan = plan_epoch(batch.global_batch_size, batch.global_batch_size, batch.last_batch,
                                    rank_costs(profile, batch), planner_options(profile, configuration));
  std::vector<Wait> waits;
  for (const RankPlan& rank : plan.full.ranks) {
    Wait wait{rank.device, rank.samples, plan.full.predicted_step_seconds, 0.0, 0.0};
    wait.reading_seconds = static_cast<double>(rank.samples) / quickest(report);
    wait.wait_seconds = std::max(0.0, wait.reading_seconds - wait.step_seconds);
    waits.push_back(wait);
  }
  return waits;
}

std::string class_text(const ClassCount& one) {
  return one.name.empty() ? fmt::format("{}: {}", one.index, one.samples)
                          : fmt::format("{} {}: {}", one.index, one.name, one.samples);
}

std::string classes_text(const SplitReport& split) {
  std::string text = fmt::format("  classes   {}", split.num_classes);
  if (split.classes.empty()) return text + "\n";
  const auto [fewest, most] = std::ranges::minmax(split.classes, {}, &ClassCount::samples);
  text += fmt::format(", {} of them here, with {} to {} samples\n", split.classes.size(), fewest.samples, most.samples);
  std::string line;
  const std::size_t shown = std::min(k_most_classes_shown, split.classes.size());
  for (std::size_t i = 0; i < shown; ++i) line += (i > 0 ? ", " : "") + class_text(split.classes[i]);
  return text +
         fmt::format("            {}{}\n", line, shown < split.classes.size() ? ", … (--json FILE has all)" : "");
}

std::string ranges_text(const SplitReport& split) {
  std::string text;
  for (std::size_t i = 0; i < split.ranges.size(); ++i) {
    const ChannelRange& range = split.ranges[i];
    text += fmt::format("  {:<10}{}{:g} to {:g}, mean {:.4g}{}\n", i == 0 ? "values" : "",
                        split.ranges.size() > 1 ? fmt::format("channel {}: ", i) : "", range.least, range.largest,
                        range.mean, range.not_finite > 0 ? fmt::format("; {} are not finite", range.not_finite) : "");
  }
  return text;
}

std::string broken_text(const SplitReport& split) {
  if (split.num_broken == 0) return {};
  std::string text = fmt::format("  broken    {} of {} samples cannot be read\n", split.num_broken, split.read);
  for (const BrokenSample& one : split.broken) text += fmt::format("            {}: {}\n", one.sample, one.reason);
  const auto shown = static_cast<std::int64_t>(split.broken.size());
  if (shown < split.num_broken) text += fmt::format("            and {} more\n", split.num_broken - shown);
  return text;
}

std::string split_text(const char* name, const SplitReport& split) {
  std::string text = fmt::format("{}: {} samples{}\n", name, split.samples,
                                 split.read < split.samples ? fmt::format(", {} of them looked at", split.read) : "");
  for (std::size_t i = 0; i < split.columns.size(); ++i) {
    const DescribedColumn& column = split.columns[i];
    text += fmt::format("  {:<10}{}  {} [{}]\n", i == 0 ? "holds" : "", column.name, column.type,
                        fmt::join(column.shape, ", "));
  }
  if (split.num_classes > 0) text += classes_text(split);
  if (split.lengths)
    text += fmt::format("  lengths   {} to {}, median {}, 95 % up to {}\n", split.lengths->least, split.lengths->most,
                        split.lengths->median, split.lengths->upper);
  return text + ranges_text(split) + broken_text(split);
}

std::string text_of(const DataReport& report, const std::vector<Wait>& waits) {
  std::string text = split_text("training", report.train);
  if (report.validation) text += split_text("validation", *report.validation);
  text += "reading alone, as epoch 0 trains with them\n";
  for (const ReadingSpeed& one : report.reading)
    text += fmt::format("  {} thread{}  {:>10.0f} samples/s\n", one.threads, one.threads == 1 ? " " : "s",
                        one.samples_per_second);
  for (std::size_t i = 0; i < waits.size(); ++i)
    text += fmt::format("  rank {} ({}): {} samples in {:.4g} s; reading them takes {:.4g} s: {}\n", i, waits[i].device,
                        waits[i].samples, waits[i].step_seconds, waits[i].reading_seconds,
                        waits[i].wait_seconds > 0.0 ? fmt::format("waits {:.4g} s a step", waits[i].wait_seconds)
                                                    : "no wait where samples are read ahead");
  return text;
}

// Not finite: null.
Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}

Json document_of(const SplitReport& split) {
  Json document = {{"samples", split.samples},         {"looked_at", split.read},        {"columns", Json::array()},
                   {"num_classes", split.num_classes}, {"classes", Json::array()},       {"lengths", Json()},
                   {"ranges", Json::array()},          {"num_broken", split.num_broken}, {"broken", Json::array()}};
  for (const DescribedColumn& one : split.columns)
    document["columns"].push_back({{"name", one.name}, {"type", one.type}, {"shape", one.shape}});
  for (const ClassCount& one : split.classes)
    document["classes"].push_back(
        {{"index", one.index}, {"name", one.name.empty() ? Json() : Json(one.name)}, {"samples", one.samples}});
  if (const auto& lengths = split.lengths)
    document["lengths"] = {
        {"least", lengths->least}, {"median", lengths->median}, {"upper", lengths->upper}, {"most", lengths->most}};
  for (const ChannelRange& one : split.ranges)
    document["ranges"].push_back({{"least", number(one.least)},
                                  {"largest", number(one.largest)},
                                  {"mean", number(one.mean)},
                                  {"not_finite", one.not_finite}});
  for (const BrokenSample& one : split.broken)
    document["broken"].push_back({{"sample", one.sample}, {"reason", one.reason}});
  return document;
}

std::string document_of(const DataReport& report, const std::vector<Wait>& waits) {
  Json document = {{"train", document_of(report.train)},
                   {"validation", report.validation ? document_of(*report.validation) : Json()},
                   {"reading", Json::array()},
                   {"ranks", waits.empty() ? Json() : Json::array()}};
  for (const ReadingSpeed& one : report.reading)
    document["reading"].push_back({{"threads", one.threads}, {"samples_per_second", number(one.samples_per_second)}});
  for (const Wait& one : waits)
    document["ranks"].push_back({{"device", one.device},
                                 {"samples", one.samples},
                                 {"step_seconds", number(one.step_seconds)},
                                 {"reading_seconds", number(one.reading_seconds)},
                                 {"wait_seconds", number(one.wait_seconds)}});
  return document.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string describe_data(const Arguments& arguments) {
  const Configuration configuration = configuration_of(arguments);
  if (!arguments.sheet_file.empty()) check_can_be_written("--sheet", arguments.sheet_file, Output::text);
  DataReportOptions options;
  options.most_samples = arguments.most_samples;
  options.sheet = arguments.sheet_file.empty() ? WithSheet::no : WithSheet::yes;
  const DataReport report = onebatch::describe_data(configuration, options);
  std::vector<Wait> waits;
  if (!arguments.profile_file.empty()) waits = waits_of(report, configuration, arguments.profile_file);
  if (report.sheet) write_output(arguments.sheet_file, png_of(*report.sheet));
  if (!arguments.quiet) print_out(text_of(report, waits));
  if (report.sheet && !arguments.quiet) print_out(fmt::format("the images are in {}\n", arguments.sheet_file));
  return document_of(report, waits);
}

}  // namespace onebatch::launch
