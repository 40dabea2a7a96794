#include "launch/terminal.hpp"

#include "launch/standard_streams.hpp"
#include "trainer/probe/memory_use.hpp"
#include "trainer/probe/timing.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace onebatch::launch {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int k_bar_width = 24;
constexpr auto k_redraw = std::chrono::milliseconds(100);
constexpr std::int64_t k_no_limit = INT64_MAX;

// mpirun gives its ranks a terminal of their own and copies what they write: where that goes is what counts.
bool writes_to_terminal() {
  if (!out_is_terminal()) return false;
  if (std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr) return true;
  std::error_code error;
  const auto target = std::filesystem::read_symlink("/proc/" + std::to_string(getppid()) + "/fd/1", error).string();
  return target.starts_with("/dev/pts/") || target.starts_with("/dev/tty");
}

std::string mebibytes(std::int64_t bytes) {
  return bytes == k_no_limit || bytes == 0 ? "none" : fmt::format("{} MiB", bytes >> 20);
}

double trial_seconds(const RankProfile& rank) {
  double sum = 0.0;
  for (const Trial& trial : rank.trials) sum += 2.0 * trial.seconds;
  return sum;
}

std::string accuracy_text(const EvaluationResult& result) {
  return result.accuracy ? fmt::format(", accuracy {:.2f} %", *result.accuracy * 100.0) : "";
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::max(0.0, seconds));
  return whole >= 3600 ? fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
                       : fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

Terminal::Terminal(TerminalOptions options) : options_(options), on_terminal_(writes_to_terminal()) {}

Terminal::~Terminal() {
  end_bar();
}

void Terminal::print(std::string_view text) {
  const std::string whole = fmt::format("{}{}", text, text.ends_with('\n') ? "" : "\n");
  if (options_.quiet) return print_to_log(whole);
  end_bar();
  print_out(whole);
}

void Terminal::info(std::string_view line) {
  print(line);
}

void Terminal::warn(std::string_view line) {
  end_bar();
  print_error(fmt::format("onebatch: warning: {}\n", line));
}

void Terminal::fallback(std::string_view asked, std::string_view done) {
  const std::string line = fmt::format("asked for {}; did {}", asked, done);
  if (options_.strict) throw UserError("--strict: " + line);
  if (said_.insert(line).second) warn(line);
}

void Terminal::profile_measured(const ClusterProfile& profile) {
  print(profile_table(profile));
}

void Terminal::plan_made(const EpochPlan& plan) {
  print(plan_table(plan));
}

void Terminal::training_begins(std::int64_t first_step, std::int64_t last_step) {
  first_step_ = first_step;
  last_step_ = last_step;
  begin_ = Clock::now();
}

void Terminal::step_done(const StepRecord& record) {
  const bool draws = on_terminal_ && !options_.quiet;
  if (draws) draw_bar(record);
  if (record.step % options_.every_steps != 0 && record.step != last_step_) return;
  const std::string line = fmt::format("step {}/{}  epoch {}  loss {:.4f}  lr {:.3g}  {:.0f} samples/s\n", record.step, last_step_,
                                       record.epoch, record.loss, record.lr, record.samples_per_second);
  draws ? print_to_log(line) : print(line);
}

void Terminal::draw_bar(const StepRecord& record) {
  const auto now = Clock::now();
  if (bar_drawn_ && now - last_drawn_ < k_redraw && record.step != last_step_) return;
  const double done = last_step_ > 0 ? static_cast<double>(record.step) / static_cast<double>(last_step_) : 1.0;
  const int filled = static_cast<int>(done * k_bar_width);
  const double elapsed = std::chrono::duration<double>(now - begin_).count();
  const double left =
      elapsed / static_cast<double>(std::max<std::int64_t>(1, record.step - first_step_)) * static_cast<double>(last_step_ - record.step);
  redraw_line(fmt::format("{}{} {}/{}  loss {:.4f}  {:.0f} samples/s  {} left", std::string(static_cast<std::size_t>(filled), '#'),
                          std::string(static_cast<std::size_t>(k_bar_width - filled), '.'), record.step, last_step_, record.loss,
                          record.samples_per_second, duration_text(left)));
  bar_drawn_ = true;
  last_drawn_ = now;
}

void Terminal::end_bar() {
  if (bar_drawn_) print_out("\n");
  bar_drawn_ = false;
}

void Terminal::validated(std::int64_t epoch, const EvaluationResult& result) {
  print(fmt::format("validation after epoch {}: loss {:.6f}{}", epoch, result.loss, accuracy_text(result)));
}

void Terminal::checkpoint_saved(std::int64_t step, std::string_view path) {
  print(fmt::format("checkpoint of step {} saved in {}", step, path));
}

std::string profile_table(const ClusterProfile& profile) {
  std::string text = "probe of every rank's device\n";
  text += fmt::format("{:>4}  {:<34} {:>10}  {:>5}  {:>7}  {:>8}  {:>9}  {:>6}  {:>13}  {:>7}\n", "rank", "device", "limit", "least",
                      "largest", "plan may", "used", "trials", "out of memory", "seconds");
  for (const RankProfile& rank : profile.ranks) {
    const auto failures = std::count_if(rank.trials.begin(), rank.trials.end(), [](const Trial& trial) { return trial.out_of_memory; });
    const bool limited = rank.memory_limit_bytes > 0 && rank.memory_limit_bytes != k_no_limit;
    const std::string used =
        limited ? fmt::format("{:.1f} %", 100.0 * static_cast<double>(rank.peak_bytes) / static_cast<double>(rank.memory_limit_bytes))
                : mebibytes(rank.peak_bytes);
    text += fmt::format("{:>4}  {:<34} {:>10}  {:>5}  {:>7}  {:>8}  {:>9}  {:>6}  {:>13}  {:>7.2f}\n", rank.rank, rank.device,
                        mebibytes(rank.memory_limit_bytes), rank.min_micro_batch, rank.largest_micro_batch, rank.max_micro_batch, used,
                        rank.trials.size(), failures, trial_seconds(rank));
  }
  for (const RankProfile& rank : profile.ranks) {
    text += fmt::format("rank {}: {}{}\n", rank.rank, memory_text(rank.memory),
                        rank.from_cache ? "; from the cache, confirmed by one trial (probe.cache = false measures anew)" : "");
    if (rank.times_spread > k_spoiled_spread && rank.step_seconds.back().seconds >= k_quick_seconds)
      text += fmt::format("rank {}: its times vary by {:.0f} %: something else uses this machine\n", rank.rank, 100.0 * rank.times_spread);
  }
  return text;
}

namespace {

const char* word_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass: return "";
    case Verdict::fail: return "differs";
    case Verdict::cannot_judge: return "cannot be judged";
  }
  return "";
}

std::string verdict_line(const VerifyReport& report) {
  if (report.verdict == Verdict::pass)
    return fmt::format("PASS: this is the gradient of the single large batch (tolerance {:.3g})\n", report.tolerance);
  if (report.verdict == Verdict::fail)
    return fmt::format("FAIL: this is not the gradient of the single large batch (tolerance {:.3g})\n", report.tolerance);
  if (!report.float64) return fmt::format("CANNOT JUDGE in {}\n", report.precision);
  return fmt::format("CANNOT JUDGE in {}; in float64 the same micro-batches are {:.2g} off: {}\n", report.precision,
                     report.float64->relative_l2, report.float64->pass ? "PASS" : "FAIL");
}

}  // namespace

std::string verify_text(const VerifyReport& report) {
  std::string text = fmt::format("gradient against {}\n", report.reference);
  text +=
      fmt::format("relative L2 {:.3g}, largest difference {:.3g} ({}, BatchNorm {}); one single batch in {} is off by {:.3g}\n",
                  report.relative_l2, report.max_abs, report.precision, report.batch_norm, report.precision, report.reference_relative_l2);
  auto worst = report.parameters;
  std::sort(worst.begin(), worst.end(), [](const auto& a, const auto& b) { return a.relative_l2 > b.relative_l2; });
  worst.resize(std::min<std::size_t>(worst.size(), 5));
  for (const ParameterDifference& parameter : worst)
    text += fmt::format("  {:<32} relative L2 {:.3g}\n", parameter.name, parameter.relative_l2);
  text += "compared (difference, what is allowed)\n";
  for (const Comparison& one : report.compared)
    text +=
        fmt::format("  {:<16} {:<26} {:>8.2g}  {:>8.2g}  {}\n", one.where, one.what, one.relative_l2, one.tolerance, word_of(one.verdict));
  for (const std::string& note : report.notes) text += "note: " + note + "\n";
  if (!report.reason.empty()) text += fmt::format("most likely reason ({}): {}\n", report.cause, report.reason);
  return text + verdict_line(report);
}

}  // namespace onebatch::launch
