// What a person sees while the program runs: one live line on a terminal, plain lines elsewhere.
#include "launch/report_texts.hpp"
#include "launch/sinks.hpp"
#include "launch/standard_streams.hpp"
#include "trainer/plan/plan_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

namespace onebatch::launch {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t k_bar_width = 24;
constexpr auto k_redraw = std::chrono::milliseconds(100);

// What of the live line goes last where a terminal is narrow.
enum Weight { k_bar, k_memory, k_validation, k_speed, k_time_left, k_loss, k_step };

std::string duration_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::max(0.0, seconds));
  return whole >= 3600 ? fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
                       : fmt::format("{}:{:02}", whole / 60, whole % 60);
}

// Of the rank that is nearest to its limit; of ranks without one the most that any has taken.
std::string memory_text(const std::vector<std::int64_t>& peaks, const std::vector<std::int64_t>& limits) {
  double most_used = 0.0;
  std::int64_t most = 0;
  for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
    const bool limited = rank < limits.size() && limits[rank] > 0 && limits[rank] != INT64_MAX;
    if (limited) most_used = std::max(most_used, static_cast<double>(peaks[rank]) / static_cast<double>(limits[rank]));
    most = std::max(most, peaks[rank]);
  }
  if (most_used > 0.0) return fmt::format("mem {:.0f} %", 100.0 * most_used);
  return most > 0 ? fmt::format("mem {} MiB", most >> 20) : "";
}

class Terminal {
 public:
  explicit Terminal(const SinkOptions& options) : quiet_(options.quiet), every_steps_(options.every_steps) {}
  ~Terminal() { show_live({}); }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void hear(const event::Info& info) { print(info.line); }
  void hear(const event::Warning& warning) { warn(warning.line); }
  void hear(const event::Fallback& fallback) { warn(line_of(fallback)); }
  void hear(const event::ProfileMeasured& measured) {
    limits_.clear();
    for (const RankProfile& rank : measured.profile.ranks) limits_.push_back(rank.memory_limit_bytes);
    print(profile_table(measured.profile));
  }
  void hear(const event::PlanMade& made) { print(plan_table(made.plan)); }

  void hear(const event::TrainingBegins& begins) {
    first_step_ = begins.first_step;
    last_step_ = begins.last_step;
    begin_ = Clock::now();
  }

  void hear(const event::StepDone& done) {
    const StepRecord& record = done.record;
    if (!quiet_) update_live(record);
    if (record.step % every_steps_ != 0 && record.step != last_step_) return;
    const std::string line =
        fmt::format("step {}/{}  epoch {}  loss {:.4f}  lr {:.3g}  {:.0f} samples/s\n", record.step, last_step_,
                    record.epoch, record.loss, record.lr, record.samples_per_second);
    !quiet_&& is_live() ? print_to_log(line) : print(line);
  }

  void hear(const event::Validated& validated) {
    const EvaluationResult& result = validated.result;
    validation_ = fmt::format("val {:.4f}", result.loss);
    if (result.accuracy) validation_ += fmt::format(" {:.2f} %", 100.0 * *result.accuracy);
    const std::string moment = validated.step == 0      ? "before the first step"
                               : validated.within_epoch ? fmt::format("after step {}", validated.step)
                                                        : fmt::format("after epoch {}", validated.epoch);
    print(fmt::format("validation {}: loss {:.6f}{}", moment, result.loss, metrics_text(result)));
  }

  void hear(const event::CheckpointSaved& saved) {
    print(fmt::format("checkpoint of step {} saved in {}", saved.step, saved.path));
  }

  void hear(const event::Ended& /*ended*/) { show_live({}); }
  void hear(const event::Failed& /*failed*/) { show_live({}); }

  template <typename Other>
  void hear(const Other& /*said in another way*/) {}

 private:
  void print(std::string_view text) {
    const std::string whole = fmt::format("{}{}", text, text.ends_with('\n') ? "" : "\n");
    quiet_ ? print_to_log(whole) : print_out(whole);
  }

  static void warn(std::string_view line) { print_error(fmt::format("onebatch: warning: {}\n", line)); }

  void update_live(const StepRecord& record) {
    const auto now = Clock::now();
    if (drawn_ && now - *drawn_ < k_redraw && record.step != last_step_) return;
    drawn_ = now;
    show_live({{is_live() ? bar(record.step) : "", k_bar},
               {fmt::format("step {}/{}", record.step, last_step_), k_step},
               {fmt::format("loss {:.4f}", record.loss), k_loss},
               {fmt::format("{:.0f} samples/s", record.samples_per_second), k_speed},
               {memory_text(record.memory_peak_bytes, limits_), k_memory},
               {validation_, k_validation},
               {fmt::format("{} left", duration_text(seconds_left(record.step, now))), k_time_left}});
  }

  std::string bar(std::int64_t step) const {
    const double done = last_step_ > 0 ? static_cast<double>(step) / static_cast<double>(last_step_) : 1.0;
    const auto filled =
        std::clamp<std::size_t>(static_cast<std::size_t>(done * static_cast<double>(k_bar_width)), 0, k_bar_width);
    return std::string(filled, '#') + std::string(k_bar_width - filled, '.');
  }

  double seconds_left(std::int64_t step, Clock::time_point now) const {
    const double elapsed = std::chrono::duration<double>(now - begin_).count();
    return elapsed / static_cast<double>(std::max<std::int64_t>(1, step - first_step_)) *
           static_cast<double>(last_step_ - step);
  }

  bool quiet_;
  std::int64_t every_steps_;
  std::int64_t first_step_ = 0;
  std::int64_t last_step_ = 0;
  std::vector<std::int64_t> limits_;  // per rank
  std::string validation_;            // the last one
  Clock::time_point begin_;
  std::optional<Clock::time_point> drawn_;
};

}  // namespace

Listener make_terminal(const SinkOptions& options) {
  return [terminal = std::make_shared<Terminal>(options)](const Event& event) {
    std::visit([&](const auto& one) { terminal->hear(one); }, event);
  };
}

}  // namespace onebatch::launch
