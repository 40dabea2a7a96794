#include "trainer/events/csv_writer.hpp"

#include "trainer/io/durable_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <memory>
#include <optional>
#include <sstream>
#include <system_error>

namespace onebatch {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const char* what, const fs::path& file) {
  throw std::system_error(errno != 0 ? errno : EIO, std::generic_category(), what + file.string());
}

// Its whole lines: one without an end is torn.
std::vector<std::string> whole_lines(const fs::path& file) {
  std::vector<std::string> lines;
  if (!fs::exists(file)) return lines;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line) && !in.eof();) lines.push_back(line);
  if (!in.eof() || in.bad()) fail("cannot read ", file);
  return lines;
}

std::optional<std::int64_t> step_of(const std::string& row) {
  std::int64_t step = 0;
  const char* end = row.data() + row.size();
  const auto read = std::from_chars(row.data(), end, step);
  return read.ec == std::errc() && read.ptr != end && *read.ptr == ',' ? std::optional(step) : std::nullopt;
}

// No column's name needs quotes.
std::vector<std::string> split(const std::string& header) {
  std::vector<std::string> names;
  std::istringstream in(header);
  for (std::string name; std::getline(in, name, ',');) names.push_back(name);
  return names;
}

std::string joined(const std::vector<std::string>& texts) {
  std::string line;
  for (const std::string& text : texts) line += fmt::format("{}{}", line.empty() ? "" : ",", text);
  return line;
}

std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "";
}

std::string number(const std::optional<double>& value) {
  return value ? number(*value) : "";
}

template <typename Number>
void add_ranks(std::vector<CsvCell>& row, const char* name, const std::vector<Number>& values) {
  for (std::size_t rank = 0; rank < values.size(); ++rank)
    row.push_back({fmt::format("{}_{}", name, rank), fmt::format("{}", values[rank])});
}

}  // namespace

CsvTable::CsvTable(fs::path file, std::int64_t last_step) : file_(std::move(file)) {
  const auto lines = whole_lines(file_);
  if (lines.empty()) {
    fs::remove(file_);
    return;
  }
  columns_ = split(lines.front());
  std::string kept = lines.front() + "\n";
  for (auto line = lines.begin() + 1; line != lines.end(); ++line) {
    const auto step = step_of(*line);
    if (step && *step <= last_step) kept += *line + "\n";
  }
  write_text_atomically(file_, kept);
}

void CsvTable::append(const std::vector<CsvCell>& row) {
  std::vector<std::string> more;
  for (const CsvCell& cell : row) {
    if (std::ranges::find(columns_, cell.column) == columns_.end()) more.push_back(cell.column);
  }
  if (!more.empty()) rewrite(more);
  if (!out_.is_open()) open();
  std::vector<std::string> texts(columns_.size());
  for (const CsvCell& cell : row)
    texts[static_cast<std::size_t>(std::ranges::find(columns_, cell.column) - columns_.begin())] = cell.text;
  errno = 0;
  out_ << joined(texts) << "\n";
  out_.flush();
  if (!out_) fail("cannot write ", file_);
}

void CsvTable::rewrite(const std::vector<std::string>& more_columns) {
  out_.close();
  auto lines = whole_lines(file_);
  if (lines.empty()) lines.emplace_back();
  columns_.insert(columns_.end(), more_columns.begin(), more_columns.end());
  std::string text = joined(columns_) + "\n";
  for (auto line = lines.begin() + 1; line != lines.end(); ++line)
    text += *line + std::string(more_columns.size(), ',') + "\n";
  write_text_atomically(file_, text);
}

void CsvTable::open() {
  errno = 0;
  out_.open(file_, std::ios::app);
  if (!out_) fail("cannot write ", file_);
}

std::vector<CsvCell> csv_row(const event::StepDone& done) {
  const StepRecord& record = done.record;
  std::vector<CsvCell> row = {{"step", fmt::format("{}", record.step)},
                              {"epoch", fmt::format("{}", record.epoch)},
                              {"consumed_samples", fmt::format("{}", record.consumed_samples)},
                              {"time", number(done.time)},
                              {"loss", number(record.loss)},
                              {"lr", number(record.lr)},
                              {"grad_norm", number(record.grad_norm)},
                              {"skipped", record.skipped ? "1" : "0"},
                              {"loss_scale", number(record.loss_scale)},
                              {"step_seconds", number(record.step_seconds)},
                              {"exposed_comm_seconds", number(record.exposed_comm_seconds)},
                              {"samples_per_second", number(record.samples_per_second)},
                              {"reduced_bytes", fmt::format("{}", record.reduced_bytes)},
                              {"plan", fmt::format("{}", record.plan)}};
  add_ranks(row, "compute_seconds", record.compute_seconds);
  add_ranks(row, "data_wait_seconds", record.data_wait_seconds);
  add_ranks(row, "memory_peak_bytes", record.memory_peak_bytes);
  return row;
}

std::vector<CsvCell> csv_row(const event::Validated& validated) {
  const EvaluationResult& result = validated.result;
  std::vector<CsvCell> row = {{"step", fmt::format("{}", validated.step)},
                              {"epoch", fmt::format("{}", validated.epoch)},
                              {"consumed_samples", fmt::format("{}", validated.consumed_samples)},
                              {"time", number(validated.time)},
                              {"lr", number(validated.lr)},
                              {"samples", fmt::format("{}", result.samples)},
                              {"loss", number(result.loss)}};
  if (result.accuracy) row.push_back({"accuracy", number(result.accuracy)});
  for (const MetricValue& metric : result.metrics) row.push_back({metric.name, number(metric.value)});
  return row;
}

namespace {

class CsvWriter {
 public:
  CsvWriter(fs::path metrics_file, fs::path validation_file)
      : metrics_file_(std::move(metrics_file)), validation_file_(std::move(validation_file)) {}

  void operator()(const Event& event) {
    if (const auto* begins = std::get_if<event::TrainingBegins>(&event)) {
      steps_.emplace(metrics_file_, begins->first_step);
      validations_.emplace(validation_file_, begins->first_step);
    }
    const auto* done = std::get_if<event::StepDone>(&event);
    if (done != nullptr && steps_) steps_->append(csv_row(*done));
    const auto* validated = std::get_if<event::Validated>(&event);
    if (validated != nullptr && validations_) add(*validated);
  }

 private:
  // A complete run that is started again validates again.
  void add(const event::Validated& validated) {
    if (validated.step == validated_step_) return;
    if (!validated_step_) validations_.emplace(validation_file_, validated.step - 1);
    validated_step_ = validated.step;
    validations_->append(csv_row(validated));
  }

  fs::path metrics_file_;
  fs::path validation_file_;
  std::optional<CsvTable> steps_;
  std::optional<CsvTable> validations_;
  std::optional<std::int64_t> validated_step_;
};

}  // namespace

Listener write_csv(const fs::path& metrics_file, const fs::path& validation_file) {
  return
      [writer = std::make_shared<CsvWriter>(metrics_file, validation_file)](const Event& event) { (*writer)(event); };
}

}  // namespace onebatch
