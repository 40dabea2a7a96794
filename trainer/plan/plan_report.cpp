#include "trainer/plan/plan_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace onebatch {
namespace {

constexpr std::size_t k_most_single_rows = 16;

using Row = std::array<std::string, 6>;

std::string milliseconds(double seconds) {
  return fmt::format("{:.2f} ms", seconds * 1e3);
}

std::string micro_batches(const std::vector<MicroBatchRun>& runs) {
  std::string text;
  for (const auto& [size, count] : runs) text += fmt::format("{}{}x{}", text.empty() ? "" : " + ", count, size);
  return text.empty() ? "none" : text;
}

// Ranks that follow each other and do the same.
std::string ranks_of(const RankPlan& first, const RankPlan& last) {
  return first.rank == last.rank ? fmt::to_string(first.rank) : fmt::format("{}-{}", first.rank, last.rank);
}

Row row_of(const RankPlan& rank, const RankPlan& last) {
  return {ranks_of(rank, last),
          rank.device,
          fmt::to_string(rank.samples),
          micro_batches(rank.micro_batches),
          milliseconds(rank.predicted_seconds),
          fmt::format("{:.1f} %", rank.idle_fraction * 100.0)};
}

std::string aligned(const std::vector<Row>& rows) {
  Row::size_type column_count = rows.front().size();
  std::vector<std::size_t> width(column_count, 0);
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < column_count; ++i) width[i] = std::max(width[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < column_count; ++i) {
      const std::string padding(width[i] - row[i].size(), ' ');
      const bool words = i == 1 || i == 3;  // left-aligned, numbers to the right
      text += (i > 0 ? "  " : "") + (words ? row[i] + padding : padding + row[i]);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += "\n";
  }
  return text;
}

std::string compared(const char* name, const std::optional<double>& seconds, double planned) {
  if (!seconds) return std::string(name) + " does not fit";
  return fmt::format("{} {} ({:.2f}x)", name, milliseconds(*seconds), planned > 0.0 ? *seconds / planned : 1.0);
}

}  // namespace

std::string plan_table(const Plan& plan) {
  std::vector<Row> rows = {{"rank", "device", "samples", "micro-batches", "time", "idle"}};
  const auto same = [](const RankPlan& a, const RankPlan& b) {
    return a.device == b.device && a.micro_batches == b.micro_batches && a.predicted_seconds == b.predicted_seconds;
  };
  const bool many = plan.ranks.size() > k_most_single_rows;
  for (std::size_t r = 0; r < plan.ranks.size();) {
    std::size_t last = r;
    while (many && last + 1 < plan.ranks.size() && same(plan.ranks[r], plan.ranks[last + 1])) ++last;
    rows.push_back(row_of(plan.ranks[r], plan.ranks[last]));
    r = last + 1;
  }
  std::string text = fmt::format("plan for a global batch of {}\n{}", plan.global_batch_size, aligned(rows));
  text += "step " + milliseconds(plan.predicted_step_seconds);
  if (plan.equal_split_seconds || plan.memory_split_seconds)  // in lock-step neither is looked at
    text += fmt::format("; {}, {}", compared("an equal split", plan.equal_split_seconds, plan.predicted_step_seconds),
                        compared("a split by memory", plan.memory_split_seconds, plan.predicted_step_seconds));
  text += "\n";
  for (const std::string& note : plan.notes) text += "note: " + note + "\n";
  return text;
}

std::string plan_table(const EpochPlan& plan) {
  std::string text = plan_table(plan.full);
  if (plan.last) text += "the last, short batch of an epoch: " + plan_table(*plan.last);
  return text;
}

}  // namespace onebatch
