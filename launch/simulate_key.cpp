#include "launch/simulate_key.hpp"

#include "launch/key_types.hpp"
#include "trainer/base/error.hpp"

namespace onebatch::launch {
namespace {

const std::string k_devices = "a list of {memory = \"512MiB\", slowdown = 1.0}";

Complaint read_memory(const toml::node& value, std::int64_t& bytes) {
  const auto text = value.value<std::string>();
  const auto read =
      value.is_integer() && *value.value<std::int64_t>() > 0 ? value.value<std::int64_t>() : (text ? parse_bytes(*text) : std::nullopt);
  if (!read) return "memory must be a size such as \"512MiB\"";
  bytes = *read;
  return {};
}

Complaint read_slowdown(const toml::node& value, double& slowdown) {
  const auto read = value.value<double>();
  if (!value.is_number() || !read || !(*read >= 1.0) || *read > 1e6) return "slowdown must be a number from 1.0";
  slowdown = *read;
  return {};
}

Complaint read_change(const toml::node& node, DeviceChange& change) {
  const toml::table* table = node.as_table();
  if (table == nullptr || !table->contains("step")) return "write changes = [{step = 100, slowdown = 3.0}]";
  for (const auto& [key, value] : *table) {
    Complaint complaint;
    if (key.str() == "step") {
      const auto step = value.value_exact<std::int64_t>();
      if (!step || *step < 1) return "a change's step must be a whole number from 1";
      change.step = *step;
    } else if (key.str() == "memory") {
      complaint = read_memory(value, change.memory_bytes.emplace());
    } else if (key.str() == "slowdown") {
      complaint = read_slowdown(value, change.slowdown.emplace());
    } else {
      return "a change has step, memory and slowdown, not " + quoted(std::string(key.str()));
    }
    if (!complaint.empty()) return complaint;
  }
  return {};
}

Complaint read_changes(const toml::node& node, std::vector<DeviceChange>& changes) {
  const toml::array* list = node.as_array();
  if (list == nullptr) return "write changes = [{step = 100, slowdown = 3.0}]";
  for (const toml::node& item : *list) {
    if (auto complaint = read_change(item, changes.emplace_back()); !complaint.empty()) return complaint;
    if (changes.size() > 1 && changes[changes.size() - 2].step > changes.back().step) return "changes must be in the order of their steps";
  }
  return {};
}

Complaint read_step_seconds(const toml::node& node, std::vector<TimedSize>& points) {
  const std::string wanted = "write step_seconds = [[1, 0.004], [64, 0.1]]: sizes of micro-batches and their seconds";
  const toml::array* list = node.as_array();
  if (list == nullptr) return wanted;
  for (const toml::node& item : *list) {
    const toml::array* pair = item.as_array();
    if (pair == nullptr || pair->size() != 2 || !pair->get(1)->is_number()) return wanted;
    const auto size = pair->get(0)->value_exact<std::int64_t>();
    if (!size) return wanted;
    points.push_back({*size, *pair->get(1)->value<double>()});
  }
  try {
    points = CostTable(points).points();
  } catch (const UserError& error) {
    return error.what();
  }
  return {};
}

Complaint read_device(const toml::node& node, SimulatedDevice& device) {
  const toml::table* table = node.as_table();
  if (table == nullptr) return "write {memory = \"512MiB\", slowdown = 1.0} for each device";
  for (const auto& [key, value] : *table) {
    Complaint complaint;
    if (key.str() == "memory") {
      complaint = read_memory(value, device.memory_bytes);
    } else if (key.str() == "slowdown") {
      complaint = read_slowdown(value, device.slowdown);
    } else if (key.str() == "changes") {
      complaint = read_changes(value, device.changes);
    } else if (key.str() == "step_seconds") {
      complaint = read_step_seconds(value, device.step_seconds);
    } else {
      return "a simulated device has memory, slowdown, step_seconds and changes, not " + quoted(std::string(key.str()));
    }
    if (!complaint.empty()) return complaint;
  }
  return {};
}

std::string show(const DeviceChange& change) {
  std::string text = "{step = " + std::to_string(change.step);
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
    points += (points.empty() ? "[" : ", [") + std::to_string(size) + ", " + number_text(seconds) + "]";
  if (!points.empty()) text += ", step_seconds = [" + points + "]";
  std::string changes;
  for (const DeviceChange& change : device.changes) changes += (changes.empty() ? "" : ", ") + show(change);
  return text + (changes.empty() ? "" : ", changes = [" + changes + "]") + "}";
}

}  // namespace

ConfigKey simulate_key() {
  return {"simulate.devices", k_devices,
          [](const toml::node& node, Configuration& c) -> Complaint {
            const toml::array* list = node.as_array();
            if (list == nullptr) return "write " + k_devices + ", one per rank";
            std::vector<SimulatedDevice> devices;
            for (const toml::node& item : *list) {
              const Complaint complaint = read_device(item, devices.emplace_back());
              if (!complaint.empty()) return complaint;
            }
            c.simulate = devices;
            return {};
          },
          [](const Configuration& c) {
            std::string text;
            for (const SimulatedDevice& device : c.simulate) text += (text.empty() ? "" : ", ") + show(device);
            return "[" + text + "]";
          }};
}

}  // namespace onebatch::launch
