#include "trainer/events/csv_writer.hpp"

#include "trainer/base/error.hpp"
#include "trainer/io/durable_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <memory>
#include <optional>
#include <system_error>

namespace onebatch {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const char* what, const fs::path& file) {
  throw std::system_error(errno != 0 ? errno : EIO, std::generic_category(), what + file.string());
}

// Where a record's line ends, which no newline within quotes is; npos: it is torn.
std::size_t end_of_record(const std::string& text, std::size_t begin) {
  bool quoted = false;
  for (std::size_t at = begin; at < text.size(); ++at) {
    if (text[at] == '"') quoted = !quoted;
    if (text[at] == '\n' && !quoted) return at;
  }
  return std::string::npos;
}

// Its whole records, the header first: one without an end is torn. None where there is no such file.
std::vector<std::string> whole_records(const fs::path& file) {
  std::vector<std::string> records;
  if (!fs::exists(file)) return records;
  std::string text;
  try {
    text = read_text(file);
  } catch (const UserError&) {
    throw std::system_error(EIO, std::generic_category(), "cannot read " + file.string());
  }
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = end_of_record(text, begin)) != std::string::npos; begin = end + 1)
    records.push_back(text.substr(begin, end - begin));
  return records;
}

std::optional<std::int64_t> step_of(const std::string& row) {
  std::int64_t step = 0;
  const char* end = row.data() + row.size();
  const auto read = std::from_chars(row.data(), end, step);
  return read.ec == std::errc() && read.ptr != end && *read.ptr == ',' ? std::optional(step) : std::nullopt;
}

// RFC 4180: a class's name may hold anything.
std::string quoted_where_needed(const std::string& name) {
  if (name.find_first_of(",\"\r\n") == std::string::npos) return name;
  std::string quoted = "\"";
  for (const char letter : name) quoted += letter == '"' ? "\"\"" : std::string(1, letter);
  return quoted + "\"";
}

// The names of a header, without their quotes.
std::vector<std::string> split(const std::string& header) {
  std::vector<std::string> names(1);
  bool quoted = false;
  for (std::size_t at = 0; at < header.size(); ++at) {
    const char letter = header[at];
    if (letter == '"' && quoted && at + 1 < header.size() && header[at + 1] == '"') {
      names.back() += header[++at];
    } else if (letter == '"') {
      quoted = !quoted;
    } else if (letter == ',' && !quoted) {
      names.emplace_back();
    } else {
      names.back() += letter;
    }
  }
  return names;
}

std::string joined(const std::vector<std::string>& texts) {
  return fmt::format("{}", fmt::join(texts, ","));
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

std::string header_of(std::vector<std::string> columns) {
  std::ranges::transform(columns, columns.begin(), quoted_where_needed);
  return joined(columns);
}

}  // namespace

CsvTable::CsvTable(fs::path file, std::int64_t last_step) : file_(std::move(file)) {
  const auto lines = whole_records(file_);
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
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (place_of(row[i].column, i) == columns_.size()) more.push_back(row[i].column);
  }
  if (!more.empty()) rewrite(more);
  if (!out_.is_open()) open();
  std::vector<std::string> texts(columns_.size());
  for (std::size_t i = 0; i < row.size(); ++i) texts[place_of(row[i].column, i)] = row[i].text;
  errno = 0;
  out_ << joined(texts) << "\n";
  out_.flush();
  if (!out_) fail("cannot write ", file_);
}

// Nearly every row has the columns in their order.
std::size_t CsvTable::place_of(const std::string& column, std::size_t guess) const {
  if (guess < columns_.size() && columns_[guess] == column) return guess;
  return static_cast<std::size_t>(std::ranges::find(columns_, column) - columns_.begin());
}

void CsvTable::rewrite(const std::vector<std::string>& more_columns) {
  out_.close();
  auto lines = whole_records(file_);
  if (lines.empty()) lines.emplace_back();
  columns_.insert(columns_.end(), more_columns.begin(), more_columns.end());
  std::string text = header_of(columns_) + "\n";
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
    if (const auto* begins = std::get_if<event::TrainingBegins>(&event); begins != nullptr && !begins->looks_back) {
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
