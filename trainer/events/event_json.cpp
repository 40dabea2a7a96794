#include "trainer/events/event_json.hpp"

#include "trainer/documents/documents.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace onebatch {
namespace {

using Json = nlohmann::ordered_json;

// Text that is not UTF-8 (a path) must not break a line.
std::string inside(const Json& object) {
  const std::string text = object.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.substr(1, text.size() - 2);
}

std::string inside(const std::string& object) {
  return object.substr(1, object.size() - 2);
}

// A document, which has its line ends.
std::string member(const char* name, const std::string& document) {
  return inside(Json{{name, Json::parse(document)}});
}

std::string said(const event::Info& info) {
  return inside(Json{{"line", info.line}});
}

std::string said(const event::Warning& warning) {
  return inside(Json{{"line", warning.line}});
}

std::string said(const event::Fallback& fallback) {
  return inside(Json{{"asked", fallback.asked}, {"done", fallback.done}});
}

std::string said(const event::ProfileMeasured& measured) {
  return member("profile", to_json(measured.profile));
}

std::string said(const event::PlanMade& made) {
  return member("plan", to_json(made.plan));
}

std::string said(const event::TrainingBegins& begins) {
  Json members = {{"first_step", begins.first_step}, {"last_step", begins.last_step}};
  if (begins.predicted_step_seconds) members["predicted_step_seconds"] = *begins.predicted_step_seconds;
  return inside(members);
}

std::string said(const event::StepDone& done) {
  return inside(to_json_line(done.record, done.time));
}

std::string said(const event::OutOfMemory& event) {
  return inside(Json{{"step", event.step}, {"rank", event.rank}, {"micro_batch_size", event.micro_batch_size}});
}

std::string said(const event::Replanned& event) {
  const char* cause = event.cause == event::Replanned::Cause::drift ? "drift" : "out_of_memory";
  return inside(Json{{"step", event.step},
                     {"cause", cause},
                     {"replans", event.replans},
                     {"predicted_step_seconds", event.predicted_step_seconds}});
}

std::string said(const event::Validated& validated) {
  const ValidationMoment moment = {validated.step, validated.epoch, validated.consumed_samples, validated.lr,
                                   validated.time};
  return inside(validation_json_line(moment, validated.result));
}

std::string said(const event::CheckpointSaved& saved) {
  const double seconds = std::chrono::duration<double>(saved.end - saved.begin).count();
  return inside(Json{{"step", saved.step}, {"path", saved.path}, {"seconds", seconds}});
}

std::string said(const event::Ended& ended) {
  return inside(Json{{"stopped_by_signal", ended.result.stopped_by_signal},
                     {"stopped_early", ended.result.stopped_early},
                     {"result", Json::parse(to_json(ended.result))}});
}

std::string said(const event::Failed& failed) {
  return inside(Json{{"code", static_cast<int>(failed.code)}, {"reason", failed.reason}});
}

struct Name {
  std::string_view operator()(const event::Info&) const { return "info"; }
  std::string_view operator()(const event::Warning&) const { return "warning"; }
  std::string_view operator()(const event::Fallback&) const { return "fallback"; }
  std::string_view operator()(const event::ProfileMeasured&) const { return "profile"; }
  std::string_view operator()(const event::PlanMade&) const { return "plan"; }
  std::string_view operator()(const event::TrainingBegins&) const { return "training_begins"; }
  std::string_view operator()(const event::StepDone&) const { return "step"; }
  std::string_view operator()(const event::OutOfMemory&) const { return "out_of_memory"; }
  std::string_view operator()(const event::Replanned&) const { return "replanned"; }
  std::string_view operator()(const event::Validated&) const { return "validation"; }
  std::string_view operator()(const event::CheckpointSaved&) const { return "checkpoint"; }
  std::string_view operator()(const event::Ended&) const { return "ended"; }
  std::string_view operator()(const event::Failed&) const { return "failed"; }
};

}  // namespace

std::string_view name_of(const Event& event) {
  return std::visit(Name{}, event);
}

std::string to_json_line(const Event& event, std::int64_t number) {
  Json head = {{"event", name_of(event)}, {"number", number}};
  const bool has_time =
      std::holds_alternative<event::StepDone>(event) || std::holds_alternative<event::Validated>(event);
  if (!has_time) head["time"] = unix_seconds();
  const std::string members = std::visit([](const auto& one) { return said(one); }, event);
  return fmt::format("{{{},{}}}", inside(head), members);
}

}  // namespace onebatch
