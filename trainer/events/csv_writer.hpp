// metrics.csv, a row per step, and validation.csv, a row per validation: for spreadsheets and data frames. What
// metrics.jsonl and validation.jsonl have, in plain columns; what is per rank has a column for each.
#pragma once

#include "trainer/events/event_stream.hpp"

#include <filesystem>
#include <fstream>

namespace onebatch {

struct CsvCell {
  std::string column;
  std::string text;  // empty: nothing is known
};

/// A table with its header in the first row, appended to and flushed row by row. Its first column is `step`.
class CsvTable {
 public:
  /// Keeps the rows of steps up to `last_step` of a file that is there and drops later ones, and a torn last one.
  /// There is no file before the first row. Throws std::system_error naming what cannot be read or written.
  CsvTable(std::filesystem::path file, std::int64_t last_step);
  /// A column that the file does not have yet is added to it, empty in the rows before: a run that goes on on more
  /// ranks has more. Throws std::system_error naming the file (a full disk).
  void append(const std::vector<CsvCell>& row);

 private:
  [[nodiscard]] std::size_t place_of(const std::string& column, std::size_t guess) const;
  void rewrite(const std::vector<std::string>& more_columns);
  void open();

  std::filesystem::path file_;
  std::vector<std::string> columns_;  // empty: there is no file yet
  std::ofstream out_;
};

std::vector<CsvCell> csv_row(const event::StepDone& done);
std::vector<CsvCell> csv_row(const event::Validated& validated);

/// Opens these files where training begins.
Listener write_csv(const std::filesystem::path& metrics_file, const std::filesystem::path& validation_file);

}  // namespace onebatch
