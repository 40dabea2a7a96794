#include "trainer/plan/elsewhere/sweep.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace onebatch {
namespace {

// Samples per second of a device alone, at the size that suits it best.
double best_rate(const RankCost& rank) {
  double best = 0.0;
  const auto offer = [&](std::int64_t size) {
    if (size < rank.min_micro_batch || size > rank.max_micro_batch) return;
    const double seconds = rank.table.seconds(size);
    if (seconds > 0.0) best = std::max(best, static_cast<double>(size) / seconds);
  };
  if (rank.fixed_micro_batch) {
    offer(std::min(*rank.fixed_micro_batch, rank.max_micro_batch));
    return best;
  }
  offer(rank.min_micro_batch);
  offer(rank.max_micro_batch);
  for (const auto& point : rank.table.points()) offer(point.size);
  return best;
}

}  // namespace

SweepPoint sweep_point(const SweepRequest& request, std::int64_t global_batch_size) {
  SweepPoint point{.devices = request.devices,
                   .num_ranks = static_cast<std::int64_t>(request.ranks.size()),
                   .global_batch_size = global_batch_size,
                   .step_seconds = std::nullopt,
                   .samples_per_second = 0.0,
                   .efficiency = 0.0,
                   .epoch_seconds = 0.0,
                   .cost_per_epoch = std::nullopt,
                   .note = {}};
  try {
    point.step_seconds = plan_global_batch(global_batch_size, request.ranks, request.options).predicted_step_seconds;
  } catch (const std::runtime_error& error) {
    point.note = error.what();
    return point;
  }
  if (*point.step_seconds <= 0.0) return point;
  double ideal = 0.0;
  double price = 0.0;
  bool priced = !request.prices.empty();
  for (const RankCost& rank : request.ranks) {
    ideal += best_rate(rank);
    const auto found = request.prices.find(device_key(rank.device));
    priced = priced && found != request.prices.end();
    if (priced) price += found->second;
  }
  point.samples_per_second = static_cast<double>(global_batch_size) / *point.step_seconds;
  point.efficiency = ideal > 0.0 ? point.samples_per_second / ideal : 0.0;
  const std::int64_t left_out = request.last_batch == LastBatch::drop ? request.dataset_size % global_batch_size : 0;
  point.epoch_seconds = static_cast<double>(request.dataset_size - left_out) / point.samples_per_second;
  if (priced && point.epoch_seconds > 0.0) point.cost_per_epoch = price * point.epoch_seconds / 3600.0;
  return point;
}

std::string sweep_table(const std::vector<SweepPoint>& points) {
  std::size_t width = 7;
  for (const SweepPoint& point : points) width = std::max(width, point.devices.size());
  std::string text = "devices" + std::string(width - 7, ' ') +
                     "  ranks    batch       step    samples/s  efficiency       epoch  cost/epoch\n";
  for (const SweepPoint& p : points) {
    text += p.devices + std::string(width - p.devices.size(), ' ') +
            fmt::format("  {:>5}  {:>7}", p.num_ranks, p.global_batch_size);
    if (!p.step_seconds) {
      text += "  no plan: " + p.note + "\n";
      continue;
    }
    text += fmt::format("  {:>6.2f} ms  {:>11.1f}  {:>8.1f} %", *p.step_seconds * 1e3, p.samples_per_second,
                        p.efficiency * 100.0) +
            (p.epoch_seconds > 0.0 ? fmt::format("  {:>8.1f} s", p.epoch_seconds) : "           -") +
            (p.cost_per_epoch ? fmt::format("  {:>10.4g}", *p.cost_per_epoch) : "           -") + "\n";
  }
  return text;
}

std::string to_json(const std::vector<SweepPoint>& points) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const SweepPoint& p : points) {
    nlohmann::ordered_json point = {
        {"devices", p.devices}, {"ranks", p.num_ranks}, {"global_batch_size", p.global_batch_size}};
    point["predicted_step_seconds"] =
        p.step_seconds ? nlohmann::ordered_json(*p.step_seconds) : nlohmann::ordered_json(nullptr);
    point["samples_per_second"] = p.samples_per_second;
    point["efficiency"] = p.efficiency;
    point["epoch_seconds"] = p.epoch_seconds;
    point["cost_per_epoch"] =
        p.cost_per_epoch ? nlohmann::ordered_json(*p.cost_per_epoch) : nlohmann::ordered_json(nullptr);
    if (!p.note.empty()) point["note"] = p.note;
    list.push_back(point);
  }
  return nlohmann::ordered_json{{"sweep", list}}.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace onebatch
