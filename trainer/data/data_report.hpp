// What a run's data are: counts, classes, ranges, what cannot be read, how fast it is read. Free of LibTorch.
#pragma once

#include "trainer/base/configuration.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace onebatch {

struct DescribedColumn {
  std::string name;  // as the data set calls it
  std::string type;  // "float32", "uint8", "int64", "bool"
  std::vector<std::int64_t> shape;
};

struct ClassCount {
  std::int64_t index = 0;
  std::string name;  // empty where classes have none
  std::int64_t samples = 0;
};

struct LengthStatistics {
  std::int64_t least = 0;
  std::int64_t median = 0;
  std::int64_t upper = 0;  // 95 % are not longer
  std::int64_t most = 0;
};

/// Of the first input's values, of one channel.
struct ChannelRange {
  double least = 0.0;
  double largest = 0.0;
  double mean = 0.0;
  std::int64_t not_finite = 0;  // which count for nothing else
};

struct BrokenSample {
  std::int64_t sample = 0;
  std::string reason;
};

struct SplitReport {
  std::int64_t samples = 0;
  std::int64_t read = 0;  // that were looked at: all, or as many as were asked for, evenly over the data
  std::vector<DescribedColumn> columns;
  std::int64_t num_classes = 0;
  std::vector<ClassCount> classes;  // of what was looked at, where samples have one each
  std::optional<LengthStatistics> lengths;
  std::vector<ChannelRange> ranges;
  std::int64_t num_broken = 0;
  std::vector<BrokenSample> broken;  // the first ten
};

struct ReadingSpeed {
  int threads = 0;
  double samples_per_second = 0.0;
};

/// Rows of pixels, from the top left: [height, width, channels], 1 or 3 channels.
struct SheetOfImages {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::uint32_t channels = 0;
  std::vector<std::uint8_t> pixels;
};

struct DataReport {
  SplitReport train;
  std::optional<SplitReport> validation;
  std::vector<ReadingSpeed> reading;  // of training samples, as epoch 0 trains with them
  std::optional<SheetOfImages> sheet;
};

enum class WithSheet { no, yes };

struct DataReportOptions {
  std::int64_t most_samples = 0;             // to look at, of each split; 0 = all
  double seconds_of_reading = 0.5;           // for each number of threads
  WithSheet sheet = WithSheet::no;           // 8 x 8 training images, as epoch 0 begins with them
  std::optional<std::int64_t> ignored = {};  // the label that counts for nothing
};

/// Opens the data as a run does. Throws UserError as that does, and where a sheet is asked for of what is no images.
DataReport report_data(const DataConfiguration& configuration, std::uint64_t seed, const DataReportOptions& options);

}  // namespace onebatch
