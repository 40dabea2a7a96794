// Where each rank's time goes, and how much of its memory it used.
#include "launch/report/bars.hpp"
#include "launch/report/html.hpp"
#include "launch/report/sections.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace onebatch::launch::report {
namespace {

constexpr std::size_t k_most_ranks = 128;

struct Part {
  Fill fill;
  const char* name;
  double RankTimes::*seconds;
};

constexpr std::array<Part, 5> k_parts = {
    {{Fill::compute, "compute", &RankTimes::compute_seconds},
     {Fill::data_wait, "waits for data", &RankTimes::data_wait_seconds},
     {Fill::idle, "waits for the slowest rank", &RankTimes::idle_seconds},
     {Fill::communication, "communication that nothing hides", &RankTimes::exposed_comm_seconds},
     {Fill::rest, "the rest: optimizer and what else a step does", &RankTimes::rest_seconds}}};

// All of them, or, of very many, some that stand evenly between those with the least and the most.
std::vector<std::size_t> shown_ranks(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (order.size() <= k_most_ranks) return order;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<std::size_t> shown;
  for (std::size_t i = 0; i < k_most_ranks; ++i) shown.push_back(order[i * (order.size() - 1) / (k_most_ranks - 1)]);
  return shown;
}

std::string left_out(std::size_t ranks, const char* what) {
  if (ranks <= k_most_ranks) return {};
  return fmt::format("<p class=\"note\">{} of {} ranks, evenly from the least {} to the most.</p>\n", k_most_ranks,
                     count_text(static_cast<std::int64_t>(ranks)), what);
}

std::string who(const RunRecord& run, std::size_t rank) {
  const std::string device = device_of(run, rank);
  return fmt::format("rank {}{}", rank, device.empty() ? "" : fmt::format(": {}", device));
}

std::string not_counted(const RunRecord& run) {
  if (run.metrics.not_of_ranks == 0) return {};
  return fmt::format("<p class=\"note\">Steps up to {} are of an earlier start, and not counted here.</p>\n",
                     count_text(run.metrics.not_of_ranks));
}

std::string time_row(const RunRecord& run, std::size_t r) {
  const RankTimes& rank = run.metrics.ranks[r];
  const double all = rank.seconds();
  if (!(all > 0.0)) return {};
  std::vector<Piece> pieces;
  std::string said;
  std::string figures;
  double at = 0.0;
  for (const Part& part : k_parts) {
    const double share = rank.*part.seconds / all;
    pieces.push_back({.from = at,
                      .to = at + share,
                      .fill = part.fill,
                      .label = percent_text(share),
                      .about = fmt::format("{}: {} of the time, {} a step", part.name, percent_text(share),
                                           seconds_text(rank.*part.seconds / static_cast<double>(rank.steps)))});
    said += fmt::format("{}{} {}", said.empty() ? "" : ", ", part.name, percent_text(share));
    figures += number_cell(exact(rank.*part.seconds / static_cast<double>(rank.steps),
                                 seconds_text(rank.*part.seconds / static_cast<double>(rank.steps))));
    at += share;
  }
  return fmt::format(
      "<div class=\"row\"><span class=\"who\">{}</span>{}<span class=\"what\">{}</span></div>\n",
      markup_text(who(run, r)), bar(pieces, fmt::format("{}: {}", who(run, r), said)),
      exact(rank.compute_seconds / all, fmt::format("computes {}", percent_text(rank.compute_seconds / all))));
}

std::string figures_row(const RunRecord& run, std::size_t r) {
  const RankTimes& rank = run.metrics.ranks[r];
  if (rank.steps == 0) return {};
  std::string cells;
  for (const Part& part : k_parts) {
    const double seconds = rank.*part.seconds / static_cast<double>(rank.steps);
    cells += number_cell(exact(seconds, seconds_text(seconds)));
  }
  return fmt::format("<tr data-rank=\"{}\"><th scope=\"row\">{}</th>{}</tr>\n", r, markup_text(who(run, r)), cells);
}

std::string times_of(const RunRecord& run) {
  std::vector<double> computed;
  for (const RankTimes& rank : run.metrics.ranks) computed.push_back(rank.compute_seconds);
  std::string bars;
  std::string rows;
  for (const std::size_t r : shown_ranks(computed)) {
    bars += time_row(run, r);
    rows += figures_row(run, r);
  }
  if (bars.empty()) return {};
  std::string head = head_cell("rank");
  for (const Part& part : k_parts) head += head_cell(part.name);
  return fmt::format(
      "<div class=\"rows\">\n{}</div>\n{}<details><summary>The same in figures</summary>\n{}</details>\n", bars,
      left_out(computed.size(), "compute"), table("Seconds of a step, the mean of all steps", head, rows));
}

bool has_limit_on_record(const RunRecord& run, std::size_t rank) {
  return run.profile && rank < run.profile->ranks.size();
}

// 0: none, or none that is known.
std::int64_t limit_of(const RunRecord& run, std::size_t rank) {
  if (!has_limit_on_record(run, rank)) return 0;
  const std::int64_t limit = run.profile->ranks[rank].memory_limit_bytes;
  return limit == INT64_MAX ? 0 : limit;
}

std::string memory_row(const RunRecord& run, std::size_t r, double scale) {
  const auto peak = static_cast<double>(run.metrics.ranks[r].memory_peak_bytes);
  const auto limit = static_cast<double>(limit_of(run, r));
  const bool over = limit > 0.0 && peak > limit;
  std::vector<Piece> pieces = {{.from = 0.0,
                                .to = (over ? limit : peak) / scale,
                                .fill = Fill::compute,
                                .label = limit > 0.0 ? percent_text(peak / limit) : ""}};
  if (over) pieces.push_back({.from = limit / scale, .to = peak / scale, .fill = Fill::over});
  if (limit > peak) pieces.push_back({.from = peak / scale, .to = limit / scale, .fill = Fill::idle});
  const std::string near = !over && limit > 0.0 && peak >= 0.95 * limit ? ", close to it" : "";
  const std::string none = has_limit_on_record(run, r) ? "; no limit" : "; limit not on record";
  const std::string words = limit > 0.0 ? fmt::format(" of {}, {}{}{}", bytes_text(limit), percent_text(peak / limit),
                                                      over ? ", above the limit" : "", near)
                                        : none;
  return fmt::format("<div class=\"row\"><span class=\"who\">{}</span>{}<span class=\"what\">{}{}</span></div>\n",
                     markup_text(who(run, r)),
                     bar(pieces, fmt::format("{}: {}{}", who(run, r), bytes_text(peak), words),
                         limit > 0.0 ? std::vector<double>{limit / scale} : std::vector<double>{}),
                     exact(peak, bytes_text(peak)), markup_text(words));
}

std::string memory_of(const RunRecord& run) {
  std::vector<double> used;
  double scale = 0.0;
  for (std::size_t r = 0; r < run.metrics.ranks.size(); ++r) {
    const auto peak = static_cast<double>(run.metrics.ranks[r].memory_peak_bytes);
    const auto limit = static_cast<double>(limit_of(run, r));
    scale = std::max({scale, peak, limit});
    used.push_back(limit > 0.0 ? peak / limit : peak);
  }
  if (std::all_of(used.begin(), used.end(), [](double part) { return part == 0.0; })) return {};
  std::string rows;
  for (const std::size_t r : shown_ranks(used)) rows += memory_row(run, r, scale);
  return fmt::format("<div class=\"rows\">\n{}</div>\n{}", rows, left_out(used.size(), "of its limit"));
}

}  // namespace

std::string time_section(const Runs& runs) {
  std::string html;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::string times = times_of(runs[i]);
    if (!times.empty()) html += heading_of(runs, i) + not_counted(runs[i]) + times;
  }
  if (html.empty()) return {};
  std::string keys;
  for (const Part& part : k_parts) keys += fill_key(part.fill, part.name);
  return section(
      "time", "Where the time goes",
      fmt::format("<p>Of all steps on record, as parts of each rank's time.</p>\n<p>{}</p>\n{}", keys, html));
}

std::string memory_section(const Runs& runs) {
  std::string html;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::string memory = memory_of(runs[i]);
    if (!memory.empty()) html += heading_of(runs, i) + not_counted(runs[i]) + memory;
  }
  if (html.empty()) return {};
  return section(
      "memory", "Memory",
      fmt::format("<p>The largest peak of all steps on record, against what the device may use. {}{}</p>\n{}",
                  fill_key(Fill::compute, "used"), fill_key(Fill::idle, "left below the limit"), html));
}

}  // namespace onebatch::launch::report
