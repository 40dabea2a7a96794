// Event files as TensorBoard reads them: records of TensorFlow (a length, a protocol buffer, and a checksum of each),
// written by hand.
#pragma once

#include "trainer/events/event_stream.hpp"

#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

namespace onebatch {

struct Scalar {
  std::string tag;
  double value = 0.0;  // float32 is what the file has
};

class TensorboardFile {
 public:
  /// A new file in `folder`, which is made; its name comes after those of all that are there, since TensorBoard reads
  /// them in that order. `steps_done`: what earlier files say of later steps counts no longer. Throws
  /// std::system_error naming what cannot be written.
  TensorboardFile(const std::filesystem::path& folder, double time, std::int64_t steps_done);
  /// Flushed. Throws std::system_error naming the file (a full disk).
  void write(double time, std::int64_t step, std::span<const Scalar> scalars);

 private:
  void write_record(const std::string& data);

  std::filesystem::path file_;
  std::ofstream out_;
};

/// Beyond so many ranks their numbers are summed up: the least, the median, the most.
inline constexpr std::size_t k_most_ranks_shown = 16;

std::vector<Scalar> scalars_of(const StepRecord& record);
std::vector<Scalar> scalars_of(const EvaluationResult& result);

/// Begins a file where training begins.
Listener write_tensorboard(const std::filesystem::path& folder);

}  // namespace onebatch
