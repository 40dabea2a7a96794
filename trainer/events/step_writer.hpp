// metrics.jsonl and samples.jsonl, a line per step, and validation.jsonl, a line per validation: appended and flushed,
// cut back when a run resumes from an earlier step.
#pragma once

#include "trainer/events/event_stream.hpp"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>

namespace onebatch {

class StepWriter {
 public:
  /// Keeps the lines of steps up to `resume_step` of files that are there and drops later ones (a torn last line too).
  /// Empty path: writes nothing.
  StepWriter(const std::filesystem::path& metrics_file, const std::filesystem::path& samples_file,
             std::int64_t resume_step);
  /// Throws std::system_error naming the file when it cannot be written (a full disk).
  void write(const StepRecord& record, double time);
  void write_samples(std::int64_t step, const std::vector<std::int64_t>& indices);

 private:
  std::filesystem::path metrics_path_;
  std::filesystem::path samples_path_;
  std::ofstream metrics_;
  std::ofstream samples_;
};

/// Opens these files where training begins, and has a line for each step in them.
Listener write_steps(const std::filesystem::path& metrics_file, const std::filesystem::path& samples_file);
/// The same, with a line for each validation. There is no file before the first.
Listener write_validations(const std::filesystem::path& file);

}  // namespace onebatch
