// Devices that the CPU plays.
#include "trainer/base/error.hpp"
#include "trainer/settings/special_keys.hpp"

#include <fmt/format.h>

namespace onebatch {
namespace {

const std::string k_devices = "a list of {memory = \"512MiB\", slowdown = 1.0}";

Complaint read_memory(const ConfigValue& value, std::int64_t& bytes) {
  const auto text = value.text();
  const auto read = value.integer().value_or(0) > 0 ? value.integer() : (text ? parse_bytes(*text) : std::nullopt);
  if (!read) return "memory must be a size such as \"512MiB\"";
  bytes = *read;
  return {};
}

Complaint read_slowdown(const ConfigValue& value, double& slowdown) {
  const auto read = read_number(value, {1.0, 1e6});
  if (!read) return "slowdown must be a number from 1.0";
  slowdown = *read;
  return {};
}

Complaint read_change(const ConfigValue& given, DeviceChange& change) {
  const ConfigTable* table = given.table();
  const auto is_step = [](const ConfigEntry& entry) { return entry.name == "step"; };
  if (table == nullptr || std::ranges::none_of(*table, is_step))
    return "write changes = [{step = 100, slowdown = 3.0}]";
  for (const auto& [key, value] : *table) {
    Complaint complaint;
    if (key == "step") {
      const auto step = value.integer();
      if (!step || *step < 1) return "a change's step must be a whole number from 1";
      change.step = *step;
    } else if (key == "memory") {
      complaint = read_memory(value, change.memory_bytes.emplace());
    } else if (key == "slowdown") {
      complaint = read_slowdown(value, change.slowdown.emplace());
    } else {
      return "a change has step, memory and slowdown, not " + quoted(key);
    }
    if (!complaint.empty()) return complaint;
  }
  return {};
}

Complaint read_changes(const ConfigValue& given, std::vector<DeviceChange>& changes) {
  const ConfigList* list = given.list();
  if (list == nullptr) return "write changes = [{step = 100, slowdown = 3.0}]";
  for (const ConfigValue& item : *list) {
    if (auto complaint = read_change(item, changes.emplace_back()); !complaint.empty()) return complaint;
    if (changes.size() > 1 && changes[changes.size() - 2].step > changes.back().step)
      return "changes must be in the order of their steps";
  }
  return {};
}

Complaint read_step_seconds(const ConfigValue& given, std::vector<TimedSize>& points) {
  const std::string wanted = "write step_seconds = [[1, 0.004], [64, 0.1]]: sizes of micro-batches and their seconds";
  const ConfigList* list = given.list();
  if (list == nullptr) return wanted;
  for (const ConfigValue& item : *list) {
    const ConfigList* pair = item.list();
    if (pair == nullptr || pair->size() != 2 || !pair->at(1).number()) return wanted;
    const auto size = pair->at(0).integer();
    if (!size) return wanted;
    points.push_back({*size, *pair->at(1).number()});
  }
  try {
    points = CostTable(points).points();
  } catch (const UserError& error) {
    return error.what();
  }
  return {};
}

Complaint read_device(const ConfigValue& given, SimulatedDevice& device) {
  const ConfigTable* table = given.table();
  if (table == nullptr) return "write {memory = \"512MiB\", slowdown = 1.0} for each device";
  for (const auto& [key, value] : *table) {
    Complaint complaint;
    if (key == "memory") {
      complaint = read_memory(value, device.memory_bytes);
    } else if (key == "slowdown") {
      complaint = read_slowdown(value, device.slowdown);
    } else if (key == "changes") {
      complaint = read_changes(value, device.changes);
    } else if (key == "step_seconds") {
      complaint = read_step_seconds(value, device.step_seconds);
    } else {
      return "a simulated device has memory, slowdown, step_seconds and changes, not " + quoted(key);
    }
    if (!complaint.empty()) return complaint;
  }
  return {};
}

std::string show(const DeviceChange& change) {
  std::string text = fmt::format("{{step = {}", change.step);
  if (change.memory_bytes) text += ", memory = " + bytes_text(*change.memory_bytes);
  if (change.slowdown) text += ", slowdown = " + number_text(*change.slowdown);
  return text + "}";
}

std::string show(const SimulatedDevice& device) {
  std::string text = "{";
  if (device.memory_bytes > 0) text += "memory = " + bytes_text(device.memory_bytes) + ", ";
  text += "slowdown = " + number_text(device.slowdown);
  std::string points;
  for (const auto& [size, seconds] : device.step_seconds)
    points += fmt::format("{}{}, {}]", points.empty() ? "[" : ", [", size, number_text(seconds));
  if (!points.empty()) text += ", step_seconds = [" + points + "]";
  std::string changes;
  for (const DeviceChange& change : device.changes) changes += (changes.empty() ? "" : ", ") + show(change);
  return text + (changes.empty() ? "" : ", changes = [" + changes + "]") + "}";
}

std::string show(const std::vector<SimulatedDevice>& devices) {
  std::string text;
  for (const SimulatedDevice& device : devices) text += (text.empty() ? "" : ", ") + show(device);
  return "[" + text + "]";
}

}  // namespace

KeyOf<std::vector<SimulatedDevice>> devices_key(KeyText about) {
  using Devices = std::vector<SimulatedDevice>;
  return {std::move(about), k_devices,
          [](const ConfigValue& value, Devices& devices) -> Complaint {
            if (value.list() == nullptr) return "write " + k_devices + ", one per rank";
            Devices read;
            for (const ConfigValue& item : *value.list()) {
              const Complaint complaint = read_device(item, read.emplace_back());
              if (!complaint.empty()) return complaint;
            }
            devices = read;
            return {};
          },
          [](const Devices& devices) { return show(devices); },
          [](Devices devices) {
            for (SimulatedDevice& device : devices)
              device.changes.clear();  // none of them has come when the probe measures
            return show(devices);
          }};
}

}  // namespace onebatch
