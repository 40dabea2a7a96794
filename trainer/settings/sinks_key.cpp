// Programs that are told of a run's events.
#include "trainer/settings/event_names.hpp"
#include "trainer/settings/special_keys.hpp"

#include <fmt/format.h>

namespace onebatch {
namespace {

const std::string k_sinks = "a list of {command = [\"python3\", \"sink.py\"]}";

std::string known_events() {
  std::string names;
  for (const std::string_view name : k_event_names) names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
  return names;
}

Complaint read_events(const ConfigValue& value, std::vector<std::string>& events) {
  const auto names = read_names(value);
  if (!names) return "write events = [\"step\", \"validation\"], or leave it out for all";
  for (const std::string& name : *names) {
    if (std::ranges::find(k_event_names, name) == k_event_names.end())
      return fmt::format("there is no event {}; there are {}", quoted(name), known_events());
  }
  events = *names;
  return {};
}

Complaint read_sink(const ConfigValue& given, LogSink& sink) {
  const ConfigTable* table = given.table();
  if (table == nullptr) return "write " + k_sinks;
  for (const auto& [key, value] : *table) {
    Complaint complaint;
    if (key == "command") {
      const auto words = read_names(value);
      if (!words || words->front().empty())
        return "write command = [\"python3\", \"sink.py\"]: the program, and each of its arguments";
      sink.command = *words;
    } else if (key == "events") {
      complaint = read_events(value, sink.events);
    } else {
      return "a sink has command and events, not " + quoted(key);
    }
    if (!complaint.empty()) return complaint;
  }
  return sink.command.empty() ? "a sink needs its command = [\"python3\", \"sink.py\"]" : "";
}

std::string show(const LogSink& sink) {
  const std::string events = sink.events.empty() ? "" : ", events = " + names_text(sink.events);
  return "{command = " + names_text(sink.command) + events + "}";
}

}  // namespace

KeyOf<LogConfiguration> sinks_key(KeyText about) {
  return {std::move(about), k_sinks,
          [](const ConfigValue& value, LogConfiguration& log) -> Complaint {
            if (value.list() == nullptr) return "write [[log.sinks]] above each, or " + k_sinks;
            std::vector<LogSink> sinks;
            for (const ConfigValue& item : *value.list()) {
              Complaint complaint = read_sink(item, sinks.emplace_back());
              if (!complaint.empty()) return complaint;
            }
            log.sinks = std::move(sinks);
            return {};
          },
          [](const LogConfiguration& log) {
            std::string text;
            for (const LogSink& sink : log.sinks) text += (text.empty() ? "" : ", ") + show(sink);
            return "[" + text + "]";
          }};
}

}  // namespace onebatch
