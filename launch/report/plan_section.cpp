// Who computes which micro-batches, and when each is done: a row for ranks that do the same.
#include "launch/report/axis.hpp"
#include "launch/report/bars.hpp"
#include "launch/report/html.hpp"
#include "launch/report/sections.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace onebatch::launch::report {
namespace {

constexpr std::size_t k_most_rows = 64;

// Ranks that one row stands for: the same device, and the same micro-batches where there is room for that many rows.
struct RanksAlike {
  std::vector<const RankPlan*> ranks;

  [[nodiscard]] const RankPlan& slowest() const {
    return **std::max_element(ranks.begin(), ranks.end(), [](const RankPlan* a, const RankPlan* b) {
      return a->predicted_seconds < b->predicted_seconds;
    });
  }
};

enum class Alike { in_what_they_do, in_device };

std::vector<RanksAlike> grouped(const Plan& plan, Alike alike) {
  std::vector<RanksAlike> groups;
  for (const RankPlan& rank : plan.ranks) {
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const RanksAlike& group) {
      const RankPlan& one = *group.ranks.front();
      return one.device == rank.device && (alike == Alike::in_device || (one.micro_batches == rank.micro_batches &&
                                                                         one.kept_in_host == rank.kept_in_host));
    });
    (same == groups.end() ? groups.emplace_back() : *same).ranks.push_back(&rank);
  }
  return groups;
}

double seconds_of_one(const RankPlan& rank, std::size_t run) {
  if (run < rank.micro_batch_seconds.size()) return rank.micro_batch_seconds[run];
  const auto samples = static_cast<double>(std::max<std::int64_t>(rank.samples, 1));
  return rank.predicted_seconds * static_cast<double>(rank.micro_batches[run].size) / samples;
}

std::vector<Piece> pieces_of(const RankPlan& rank, double all_seconds) {
  std::vector<Piece> pieces;
  double at = 0.0;
  for (std::size_t run = 0; run < rank.micro_batches.size(); ++run) {
    const auto& [size, count] = rank.micro_batches[run];
    const double seconds = seconds_of_one(rank, run);
    const double end = at + seconds * static_cast<double>(count);
    const std::string each = size == 0 ? "without samples" : fmt::format("of {} sample{}", size, size == 1 ? "" : "s");
    pieces.push_back({.from = at / all_seconds,
                      .to = end / all_seconds,
                      .fill = size == 0 ? Fill::idle : Fill::compute,
                      .label = count == 1 ? fmt::format("{}", size) : fmt::format("{} × {}", count, size),
                      .about = fmt::format("{} micro-batch{} {}, {} each", count, count == 1 ? "" : "es", each,
                                           seconds_text(seconds)),
                      .cuts = static_cast<int>(std::min<std::int64_t>(count, 1000))});
    at = end;
  }
  if (rank.predicted_seconds > at)
    pieces.push_back({.from = at / all_seconds,
                      .to = rank.predicted_seconds / all_seconds,
                      .fill = Fill::rest,
                      .about = "what the rank does beside micro-batches"});
  return pieces;
}

std::string micro_batches_text(const RankPlan& rank) {
  std::string text;
  for (const auto& [size, count] : rank.micro_batches)
    text += fmt::format("{}{} micro-batch{} of {}", text.empty() ? "" : ", then ", count, count == 1 ? "" : "es", size);
  return text.empty() ? "no work in a step" : text;
}

std::string range_text(double least, double most, std::string (*text)(double)) {
  const std::string low = text(least);
  const std::string high = text(most);
  return low == high ? low : fmt::format("{} to {}", low, high);
}

std::string row(const RanksAlike& group, const Plan& plan, double all_seconds) {
  const RankPlan& slowest = group.slowest();
  std::vector<int> numbers;
  double least_samples = static_cast<double>(slowest.samples);
  double most_samples = least_samples;
  double least_seconds = slowest.predicted_seconds;
  for (const RankPlan* rank : group.ranks) {
    numbers.push_back(rank->rank);
    least_samples = std::min(least_samples, static_cast<double>(rank->samples));
    most_samples = std::max(most_samples, static_cast<double>(rank->samples));
    least_seconds = std::min(least_seconds, rank->predicted_seconds);
  }
  const std::string who = fmt::format("{}{}{}", ranks_text(numbers),
                                      group.ranks.size() > 1 ? fmt::format(" ({} ranks)", group.ranks.size()) : "",
                                      slowest.device.empty() ? "" : fmt::format(": {}", slowest.device));
  const std::string samples = range_text(least_samples, most_samples, number_text);
  const std::string what =
      fmt::format("{} sample{}{}, {}{}", samples, samples == "1" ? "" : "s", group.ranks.size() > 1 ? " each" : "",
                  range_text(least_seconds, slowest.predicted_seconds, seconds_text),
                  slowest.kept_in_host ? ", kept in host memory" : "");
  const std::string said = fmt::format("{}: {}; {}", who, micro_batches_text(slowest), what);
  return fmt::format(
      "<div class=\"row\"><span class=\"who\">{}</span>{}<span class=\"what\">{}</span></div>\n", markup_text(who),
      bar(pieces_of(slowest, all_seconds), said, {plan.predicted_step_seconds / all_seconds}), markup_text(what));
}

std::string scale_of(double all_seconds) {
  std::vector<Tick> ticks;
  for (const double tick : axis_of(0.0, all_seconds).ticks) {
    if (tick <= all_seconds * 1.0001) ticks.push_back({tick / all_seconds, seconds_text(tick)});
  }
  return fmt::format("<div class=\"row\"><span class=\"who\"></span>{}<span class=\"what\"></span></div>\n",
                     bar_scale(ticks));
}

std::string other_splits(const Plan& plan) {
  const auto times = [&](const char* split, const std::optional<double>& seconds) {
    if (!seconds || !(plan.predicted_step_seconds > 0.0)) return fmt::format("; {} does not fit", split);
    return fmt::format("; {} would take {} ({:.2f} times as long)", split, exact(*seconds, seconds_text(*seconds)),
                       *seconds / plan.predicted_step_seconds);
  };
  const bool are_known = plan.equal_split_seconds || plan.memory_split_seconds;
  return plan.ranks.size() < 2 || !are_known ? ""
                                             : times("an equal split", plan.equal_split_seconds) +
                                                   times("a split by memory", plan.memory_split_seconds);
}

std::string plan_html(const Plan& plan) {
  auto groups = grouped(plan, Alike::in_what_they_do);
  const bool together = groups.size() > k_most_rows;
  if (together) groups = grouped(plan, Alike::in_device);
  double all_seconds = plan.predicted_step_seconds;
  for (const RankPlan& rank : plan.ranks) all_seconds = std::max(all_seconds, rank.predicted_seconds);
  if (!(all_seconds > 0.0)) all_seconds = 1.0;
  std::string html =
      fmt::format("<p>A step of {} samples is predicted to take {}, the dashed line{}.</p>\n",
                  exact(static_cast<double>(plan.global_batch_size), count_text(plan.global_batch_size)),
                  exact(plan.predicted_step_seconds, seconds_text(plan.predicted_step_seconds)), other_splits(plan));
  html += "<div class=\"rows\">\n";
  for (std::size_t i = 0; i < std::min(groups.size(), k_most_rows); ++i) html += row(groups[i], plan, all_seconds);
  html += scale_of(all_seconds) + "</div>\n";
  if (together)
    html += "<p class=\"note\">A row for each kind of device: of its ranks, the one that takes longest is drawn.</p>\n";
  if (groups.size() > k_most_rows)
    html += fmt::format("<p class=\"note\">{} further rows are left out; plan.json has every rank.</p>\n",
                        groups.size() - k_most_rows);
  for (const std::string& note : plan.notes) html += fmt::format("<p class=\"note\">{}</p>\n", markup_text(note));
  return html;
}

}  // namespace

std::string plan_section(const Runs& runs) {
  std::string html;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!runs[i].plan) continue;
    html += heading_of(runs, i) + plan_html(runs[i].plan->full);
    if (runs[i].plan->last) html += "<h3>The last, short batch of an epoch</h3>\n" + plan_html(*runs[i].plan->last);
  }
  if (html.empty()) return {};
  return section("plan", "Plan",
                 "<p>Each bar is a rank's step from its begin: micro-batches of so many samples, one after the other; "
                 "3 &#215; 8 are three of eight. </p>\n<p>" +
                     fill_key(Fill::compute, "micro-batches") +
                     fill_key(Fill::idle, "a micro-batch without samples, in step with the others") +
                     fill_key(Fill::rest, "what else the rank does") + "</p>\n" + html);
}

}  // namespace onebatch::launch::report
