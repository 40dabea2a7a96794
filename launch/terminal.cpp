// What a person sees while the program runs: a progress bar on a terminal, plain lines elsewhere.
#include "launch/report_texts.hpp"
#include "launch/sinks.hpp"
#include "launch/standard_streams.hpp"
#include "trainer/plan/plan_report.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <system_error>

namespace onebatch::launch {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int k_bar_width = 24;
constexpr auto k_redraw = std::chrono::milliseconds(100);

// mpirun gives its ranks a terminal of their own and copies what they write: where that goes is what counts.
bool writes_to_terminal() {
  if (!out_is_terminal()) return false;
  if (std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr) return true;
  std::error_code error;
  const auto target = std::filesystem::read_symlink(fmt::format("/proc/{}/fd/1", getppid()), error).string();
  return target.starts_with("/dev/pts/") || target.starts_with("/dev/tty");
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::max(0.0, seconds));
  return whole >= 3600 ? fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
                       : fmt::format("{}:{:02}", whole / 60, whole % 60);
}

class Terminal {
 public:
  explicit Terminal(const SinkOptions& options)
      : quiet_(options.quiet), every_steps_(options.every_steps), on_terminal_(writes_to_terminal()) {}
  ~Terminal() { end_bar(); }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void hear(const event::Info& info) { print(info.line); }
  void hear(const event::Warning& warning) { warn(warning.line); }
  void hear(const event::Fallback& fallback) {
    warn(fmt::format("asked for {}; did {}", fallback.asked, fallback.done));
  }
  void hear(const event::ProfileMeasured& measured) { print(profile_table(measured.profile)); }
  void hear(const event::PlanMade& made) { print(plan_table(made.plan)); }

  void hear(const event::TrainingBegins& begins) {
    first_step_ = begins.first_step;
    last_step_ = begins.last_step;
    begin_ = Clock::now();
  }

  void hear(const event::StepDone& done) {
    const StepRecord& record = done.record;
    const bool draws = on_terminal_ && !quiet_;
    if (draws) draw_bar(record);
    if (record.step % every_steps_ != 0 && record.step != last_step_) return;
    const std::string line =
        fmt::format("step {}/{}  epoch {}  loss {:.4f}  lr {:.3g}  {:.0f} samples/s\n", record.step, last_step_,
                    record.epoch, record.loss, record.lr, record.samples_per_second);
    draws ? print_to_log(line) : print(line);
  }

  void hear(const event::Validated& validated) {
    print(fmt::format("validation after epoch {}: loss {:.6f}{}", validated.epoch, validated.result.loss,
                      metrics_text(validated.result)));
  }

  void hear(const event::CheckpointSaved& saved) {
    print(fmt::format("checkpoint of step {} saved in {}", saved.step, saved.path));
  }

  template <typename Other>
  void hear(const Other& /*said in another way*/) {}

 private:
  void print(std::string_view text) {
    const std::string whole = fmt::format("{}{}", text, text.ends_with('\n') ? "" : "\n");
    if (quiet_) return print_to_log(whole);
    end_bar();
    print_out(whole);
  }

  void warn(std::string_view line) {
    end_bar();
    print_error(fmt::format("onebatch: warning: {}\n", line));
  }

  void draw_bar(const StepRecord& record) {
    const auto now = Clock::now();
    if (bar_drawn_ && now - last_drawn_ < k_redraw && record.step != last_step_) return;
    const double done = last_step_ > 0 ? static_cast<double>(record.step) / static_cast<double>(last_step_) : 1.0;
    const int filled = static_cast<int>(done * k_bar_width);
    const double elapsed = std::chrono::duration<double>(now - begin_).count();
    const double left = elapsed / static_cast<double>(std::max<std::int64_t>(1, record.step - first_step_)) *
                        static_cast<double>(last_step_ - record.step);
    redraw_line(fmt::format("{}{} {}/{}  loss {:.4f}  {:.0f} samples/s  {} left",
                            std::string(static_cast<std::size_t>(filled), '#'),
                            std::string(static_cast<std::size_t>(k_bar_width - filled), '.'), record.step, last_step_,
                            record.loss, record.samples_per_second, duration_text(left)));
    bar_drawn_ = true;
    last_drawn_ = now;
  }

  void end_bar() {
    if (bar_drawn_) print_out("\n");
    bar_drawn_ = false;
  }

  bool quiet_;
  std::int64_t every_steps_;
  bool on_terminal_;
  bool bar_drawn_ = false;
  std::int64_t first_step_ = 0;
  std::int64_t last_step_ = 0;
  Clock::time_point begin_;
  Clock::time_point last_drawn_;
};

}  // namespace

Listener make_terminal(const SinkOptions& options) {
  return [terminal = std::make_shared<Terminal>(options)](const Event& event) {
    std::visit([&](const auto& one) { terminal->hear(one); }, event);
  };
}

}  // namespace onebatch::launch
