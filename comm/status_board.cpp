#include "comm/status_board.hpp"

#include "comm/siblings.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <sstream>

namespace onebatch::comm {
namespace {

double seconds_since(std::int64_t nanoseconds) {
  return nanoseconds == 0 ? 0.0 : static_cast<double>(StatusBoard::now_nanoseconds() - nanoseconds) * 1e-9;
}

// What others wrote goes to a terminal: it must not steer it, nor end the line.
std::string printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  return text;
}

}  // namespace

std::string RankReport::to_line() const {
  std::ostringstream out;
  out << rank << '\t' << sequence << '\t' << (inside ? 1 : 0) << '\t' << bytes << '\t' << operation_seconds << '\t'
      << activity_seconds << '\t' << process << '\t' << printable(operation) << '\t' << printable(activity) << '\n';
  return out.str();
}

std::vector<RankReport> RankReport::from_lines(std::string_view lines) {
  std::vector<RankReport> reports;
  std::istringstream in{std::string(lines)};
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields(line);
    RankReport report;
    int inside = 0;
    if (!(fields >> report.rank >> report.sequence >> inside >> report.bytes >> report.operation_seconds >>
          report.activity_seconds >> report.process))
      continue;
    report.inside = inside != 0;
    fields.ignore(1);
    std::getline(fields, report.operation, '\t');
    std::getline(fields, report.activity, '\t');
    report.process = printable(report.process);
    report.operation = printable(report.operation);
    report.activity = printable(report.activity);
    reports.push_back(std::move(report));
  }
  return reports;
}

void StatusBoard::SharedText::store(std::string_view text) {
  std::array<std::uint64_t, std::tuple_size_v<decltype(words_)>> words{};
  std::memcpy(words.data(), text.data(), std::min(text.size(), sizeof(words) - 1));
  for (std::size_t i = 0; i < words.size(); ++i) words_[i].store(words[i], std::memory_order_relaxed);
}

std::string StatusBoard::SharedText::load() const {
  std::array<std::uint64_t, std::tuple_size_v<decltype(words_)>> words{};
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = words_[i].load(std::memory_order_relaxed);
  std::array<char, sizeof(words) + 1> text{};
  std::memcpy(text.data(), words.data(), sizeof(words));
  return text.data();
}

std::size_t StatusBoard::bytes_needed(int size) {
  return static_cast<std::size_t>(size) * sizeof(RankState);
}

StatusBoard::StatusBoard(std::byte* memory, std::vector<int> ranks, int own)
    : memory_(memory), ranks_(std::move(ranks)), own_(static_cast<std::size_t>(own)) {
  state(own_).process = getpid();
}

void StatusBoard::enter(const char* operation, std::size_t bytes) {
  RankState& own = state(own_);
  own.operation.store(operation);
  own.bytes.store(bytes, std::memory_order_relaxed);
  own.sequence.fetch_add(1, std::memory_order_relaxed);
  own.entered_nanoseconds.store(now_nanoseconds(), std::memory_order_release);
}

void StatusBoard::leave() {
  state(own_).entered_nanoseconds.store(0, std::memory_order_release);
  note_progress();
}

void StatusBoard::note_progress() {
  std::atomic<std::int64_t>& said = state(own_).activity_nanoseconds;
  if (said.load(std::memory_order_relaxed) != 0) said.store(now_nanoseconds(), std::memory_order_relaxed);
}

void StatusBoard::set_activity(std::string_view text) {
  state(own_).activity.store(text);
  state(own_).activity_nanoseconds.store(text.empty() ? 0 : now_nanoseconds(), std::memory_order_relaxed);
}

bool StatusBoard::claim_report() {
  std::uint64_t nobody = 0;
  return state(0).claimed.compare_exchange_strong(nobody, 1);
}

std::vector<RankReport> StatusBoard::read() const {
  std::vector<RankReport> reports;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const RankState& from = state(i);
    const std::int64_t entered = from.entered_nanoseconds.load(std::memory_order_acquire);
    RankReport report;
    report.rank = ranks_[i];
    report.inside = entered != 0;
    report.sequence = from.sequence.load(std::memory_order_relaxed);
    report.operation = from.operation.load();
    report.bytes = from.bytes.load(std::memory_order_relaxed);
    report.operation_seconds = seconds_since(entered);
    report.activity = from.activity.load();
    report.activity_seconds = seconds_since(from.activity_nanoseconds.load(std::memory_order_relaxed));
    report.process = process_state(from.process);
    reports.push_back(std::move(report));
  }
  return reports;
}

std::uint64_t StatusBoard::own_sequence() const {
  return state(own_).sequence.load(std::memory_order_relaxed);
}

std::int64_t StatusBoard::own_entered_nanoseconds() const {
  return state(own_).entered_nanoseconds.load(std::memory_order_acquire);
}

std::int64_t StatusBoard::own_progress_nanoseconds() const {
  return state(own_).activity_nanoseconds.load(std::memory_order_relaxed);
}

std::string StatusBoard::own_activity() const {
  return state(own_).activity.load();
}

std::vector<StatusBoard::Process> StatusBoard::stopped() const {
  std::vector<Process> processes;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (process_state(state(i).process) == "stopped") processes.push_back({ranks_[i], state(i).process});
  }
  return processes;
}

// The monotonic clock is the same for all processes of a node.
std::int64_t StatusBoard::now_nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace onebatch::comm
