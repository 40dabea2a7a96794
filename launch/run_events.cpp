// events.jsonl: what happened in a run, over all of its starts. Never cut back: it is history.
#include "launch/sinks.hpp"
#include "trainer/device/build_and_host.hpp"

#include <nlohmann/json.hpp>

#include <cerrno>
#include <chrono>
#include <fstream>
#include <memory>
#include <system_error>

namespace onebatch::launch {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

class RunEvents {
 public:
  explicit RunEvents(const SinkOptions& options)
      : folder_(options.run_dir), file_(folder_ / "events.jsonl"), rank_(options.rank) {
    if (rank_ == 0)
      say("start", {{"command", options.as_typed},
                    {"folder", working_folder()},
                    {"ranks", options.num_ranks},
                    {"build", describe_build_and_host()}});
  }

  void hear(const event::Warning& warning) { say("warning", {{"text", warning.line}}); }
  void hear(const event::Fallback& fallback) { say("fallback", {{"asked", fallback.asked}, {"done", fallback.done}}); }
  void hear(const event::ProfileMeasured& /*its document says more*/) { begin(); }

  void hear(const event::PlanMade& made) {
    begin();
    say("plan", {{"global_batch_size", made.plan.full.global_batch_size},
                 {"predicted_step_seconds", made.plan.full.predicted_step_seconds}});
  }

  void hear(const event::TrainingBegins& begins) {
    begin();
    step_ = begins.first_step;
    say("begin", {{"last_step", begins.last_step}});
  }

  void hear(const event::StepDone& done) { step_ = done.record.step; }

  void hear(const event::OutOfMemory& out) {
    say("out_of_memory", {{"rank", out.rank}, {"micro_batch_size", out.micro_batch_size}});
  }

  void hear(const event::Replanned& replanned) {
    const bool memory = replanned.cause == event::Replanned::Cause::out_of_memory;
    say("replanned", {{"cause", memory ? "out_of_memory" : "drift"}, {"replans", replanned.replans}});
  }

  void hear(const event::CheckpointSaved& saved) { say("checkpoint", {{"of_step", saved.step}, {"path", saved.path}}); }

  void hear(const event::Ended& ended) {
    say("end", {{"stopped_by_signal", ended.result.stopped_by_signal}, {"stopped_early", ended.result.stopped_early}});
  }

  // Heard on the rank that fails. A start that measured nothing leaves nothing.
  void hear(const event::Failed& failed) {
    std::error_code error;
    if (fs::exists(file_, error) || fs::exists(folder_ / "plan.json", error)) begin();
    say("failed", {{"rank", rank_}, {"exit_code", static_cast<int>(failed.code)}, {"reason", failed.reason}});
  }

  template <typename Other>
  void hear(const Other& /*has a file of its own, or is for the moment*/) {}

 private:
  static std::string working_folder() {
    std::error_code error;
    return fs::current_path(error).string();
  }

  void say(const char* what, const Json& fields) {
    const auto now =
        std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch());
    Json line = {{"time", static_cast<double>(now.count()) / 1e3}, {"event", what}, {"step", step_}};
    line.update(fields);
    waiting_ += line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    if (begun_) write();
  }

  // From here on the folder holds something that was measured.
  void begin() {
    begun_ = true;
    write();
  }

  // Whole lines at the file's end, whoever else has written there.
  void write() {
    if (waiting_.empty()) return;
    errno = 0;
    std::ofstream out(file_, std::ios::app);
    out << waiting_;
    out.close();
    if (!out)
      throw std::system_error(errno != 0 ? errno : EIO, std::generic_category(), "cannot write " + file_.string());
    waiting_.clear();
  }

  fs::path folder_;
  fs::path file_;
  int rank_;
  bool begun_ = false;
  std::int64_t step_ = 0;  // done when something happens
  std::string waiting_;
};

}  // namespace

Listener make_run_events(const SinkOptions& options) {
  if (options.run_dir.empty()) return [](const Event&) {};
  return [events = std::make_shared<RunEvents>(options)](const Event& event) {
    std::visit([&](const auto& one) { events->hear(one); }, event);
  };
}

}  // namespace onebatch::launch
