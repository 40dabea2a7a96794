#include "trainer/data/data_report.hpp"

#include "trainer/base/error.hpp"
#include "trainer/data/augment.hpp"
#include "trainer/data/image_reader.hpp"
#include "trainer/data/image_sheet.hpp"
#include "trainer/data/run_data.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/masked_select.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>

namespace onebatch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t k_at_once = 32;  // samples
constexpr std::size_t k_most_broken = 10;
constexpr std::int64_t k_most_channels = 16;  // of a first input whose second dimension may be that
constexpr std::int64_t k_sheet_columns = 8;
constexpr std::int64_t k_sheet_images = k_sheet_columns * k_sheet_columns;

std::string type_name(at::ScalarType type) {
  static const std::map<at::ScalarType, std::string> names = {{at::kFloat, "float32"},
                                                              {at::kDouble, "float64"},
                                                              {at::kByte, "uint8"},
                                                              {at::kLong, "int64"},
                                                              {at::kBool, "bool"}};
  const auto found = names.find(type);
  return found == names.end() ? c10::toString(type) : found->second;
}

// Images [channels, H, W], and rows of values whose second dimension is their channels.
bool has_channels(const at::Tensor& input) {
  return input.dim() == 4 && input.size(1) <= k_most_channels;
}

// Looks at samples block by block, and keeps what there is to say of them.
class Look {
 public:
  explicit Look(const Dataset& data) : data_(data) {}

  void at_all(std::int64_t most) {
    const std::int64_t size = data_.size();
    const std::int64_t count = most > 0 ? std::min(most, size) : size;
    report_.samples = size;
    report_.read = count;
    report_.num_classes = data_.num_classes();
    std::vector<std::int64_t> block;
    for (std::int64_t i = 0; i < count; ++i) {
      block.push_back(i * size / count);
      if (static_cast<std::int64_t>(block.size()) == k_at_once || i + 1 == count) {
        at_block(block);
        block.clear();
      }
    }
  }

  SplitReport report() {
    note_lengths();
    const std::vector<std::string> names = data_.class_names();
    for (const auto& [index, samples] : classes_) {
      const bool named = index >= 0 && static_cast<std::size_t>(index) < names.size();
      report_.classes.push_back({index, named ? names[static_cast<std::size_t>(index)] : "", samples});
    }
    for (const Sums& channel : channels_)
      report_.ranges.push_back(
          {channel.least, channel.largest, channel.sum / std::max(1.0, channel.count), channel.not_finite});
    return std::move(report_);
  }

 private:
  struct Sums {
    double least = HUGE_VAL;
    double largest = -HUGE_VAL;
    double sum = 0.0;
    double count = 0.0;
    std::int64_t not_finite = 0;
  };

  // One that is broken takes the others of its block with it: then each is read by itself.
  void at_block(const std::vector<std::int64_t>& samples) {
    try {
      note(data_.gather(samples, at::kFloat), samples);
      return;
    } catch (const UserError& error) {
      if (samples.size() == 1) return note_broken(samples.front(), error.what());
    }
    for (const std::int64_t sample : samples) at_block({sample});
  }

  void note_broken(std::int64_t sample, std::string reason) {
    if (reason.ends_with(k_stopped_by_it)) reason.resize(reason.size() - k_stopped_by_it.size());
    ++report_.num_broken;
    if (report_.broken.size() < k_most_broken) report_.broken.push_back({data_.origin_of(sample), reason});
  }

  void note(const Batch& batch, const std::vector<std::int64_t>& samples) {
    if (report_.columns.empty()) note_columns(batch);
    if (batch.targets.defined() && batch.targets.scalar_type() == at::kLong && batch.targets.dim() == 1) {
      const at::Tensor labels = batch.targets.contiguous();
      const auto* label = labels.const_data_ptr<std::int64_t>();
      for (std::int64_t i = 0; i < labels.numel(); ++i) ++classes_[label[i]];
    }
    const at::Tensor& input = batch.inputs.front();
    if (!data_.lengths().empty()) return note_sequences(input, samples);
    channels_.resize(has_channels(input) ? static_cast<std::size_t>(input.size(1)) : 1);
    for (std::size_t c = 0; c < channels_.size(); ++c)
      note_values(channels_[c], has_channels(input) ? input.select(1, static_cast<std::int64_t>(c)) : input);
  }

  // Without what they are padded with.
  void note_sequences(const at::Tensor& input, const std::vector<std::int64_t>& samples) {
    channels_.resize(1);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const std::int64_t length = data_.lengths()[static_cast<std::size_t>(samples[i])];
      note_values(channels_.front(), input.select(0, static_cast<std::int64_t>(i)).narrow(0, 0, length));
    }
  }

  static void note_values(Sums& sums, const at::Tensor& values) {
    const at::Tensor numbers = values.to(at::kDouble).flatten();
    const at::Tensor finite = numbers.masked_select(numbers.isfinite());
    sums.not_finite += numbers.numel() - finite.numel();
    if (finite.numel() == 0) return;
    sums.least = std::min(sums.least, finite.min().item<double>());
    sums.largest = std::max(sums.largest, finite.max().item<double>());
    sums.sum += finite.sum().item<double>();
    sums.count += static_cast<double>(finite.numel());
  }

  void note_columns(const Batch& batch) {
    const std::vector<at::Tensor> tensors = batch.tensors();
    for (std::size_t i = 0; i < tensors.size(); ++i)
      report_.columns.push_back(
          {data_.name_of(i), type_name(tensors[i].scalar_type()), tensors[i].sizes().slice(1).vec()});
    if (!report_.columns.empty()) report_.columns.front().shape = data_.sample_shape();
  }

  void note_lengths() {
    std::vector<std::int64_t> lengths(data_.lengths().begin(), data_.lengths().end());
    if (lengths.empty()) return;
    std::ranges::sort(lengths);
    // The least that so many are not longer than.
    const auto quantile = [&](std::size_t hundredths) {
      return lengths[std::max<std::size_t>(1, (lengths.size() * hundredths + 99) / 100) - 1];
    };
    report_.lengths = {lengths.front(), quantile(50), quantile(95), lengths.back()};
  }

  const Dataset& data_;
  SplitReport report_;
  std::map<std::int64_t, std::int64_t> classes_;
  std::vector<Sums> channels_;
};

// Threads that take one block after another of an epoch's samples, from its beginning again at its end.
class Reading {
 public:
  Reading(const Dataset& data, const std::vector<std::int64_t>& order, double seconds)
      : data_(data), order_(order), seconds_(seconds) {}

  ReadingSpeed by(int threads) {
    {
      std::vector<std::jthread> readers;
      for (int i = 0; i < threads; ++i) readers.emplace_back([this] { read_on(); });
    }
    if (error_) std::rethrow_exception(error_);
    return {threads, static_cast<double>(done_) / elapsed()};
  }

 private:
  [[nodiscard]] double elapsed() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

  // Whatever else than a broken sample goes wrong ends the command, and not a thread alone.
  void read_on() {
    at::set_num_threads(1);
    try {
      while (elapsed() < seconds_) read_block();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      error_ = std::current_exception();
    }
  }

  void read_block() {
    std::vector<std::int64_t> block(static_cast<std::size_t>(k_at_once));
    const std::size_t first = next_.fetch_add(block.size());
    for (std::size_t i = 0; i < block.size(); ++i) block[i] = order_[(first + i) % order_.size()];
    try {
      data_.read(block, at::kFloat);
      done_ += k_at_once;
    } catch (const UserError&) {  // which is counted among the broken
    }
  }

  const Dataset& data_;
  const std::vector<std::int64_t>& order_;
  double seconds_;
  Clock::time_point begin_ = Clock::now();
  std::atomic<std::size_t> next_ = 0;
  std::atomic<std::int64_t> done_ = 0;
  std::mutex mutex_;
  std::exception_ptr error_;
};

// Those that cannot be read are left out.
SheetOfImages sheet_of_training(const Dataset& data, const std::vector<std::int64_t>& order) {
  std::vector<at::Tensor> images;
  for (std::size_t i = 0; i < order.size() && static_cast<std::int64_t>(images.size()) < k_sheet_images; ++i) {
    try {
      images.push_back(data.read({&order[i], 1}, at::kFloat).inputs.front());
    } catch (const UserError&) {  // which is counted among the broken
      continue;
    }
    const at::Tensor& image = images.back();
    if (image.dim() != 4 || (!image.is_floating_point() && image.scalar_type() != at::kByte))
      throw UserError("--sheet is for images [channels, height, width]: leave it out");
  }
  if (images.empty()) throw UserError("--sheet: no image can be read");
  return sheet_of(at::cat(images), k_sheet_columns);
}

SplitReport look_at(const Dataset& data, const DataReportOptions& options) {
  Look look(data);
  look.at_all(options.most_samples);
  return look.report();
}

// The same data, but what is broken is told as it is met.
DataConfiguration telling(DataConfiguration configuration) {
  configuration.train.on_broken = OnBroken::stop;
  if (configuration.validation) configuration.validation->on_broken = OnBroken::stop;
  return configuration;
}

std::vector<ReadingSpeed> speeds_of(const TrainingData& training, const std::vector<std::int64_t>& order,
                                    double seconds) {
  std::vector<ReadingSpeed> speeds;
  for (const int threads : {1, 2, 4}) speeds.push_back(Reading(training, order, seconds).by(threads));
  return speeds;
}

}  // namespace

DataReport report_data(const DataConfiguration& configuration, std::uint64_t seed, const DataReportOptions& options) {
  const RunData data = open_run_data(telling(configuration), seed, options.ignored);
  check_augmentation(configuration.augment, *data.train);
  const TrainingData training(*data.train, configuration.augment, {seed, 0});
  const std::vector<std::int64_t> order = epoch_order(seed, 0, data.train->size(), data.drawing);
  DataReport report;
  if (options.sheet == WithSheet::yes) report.sheet = sheet_of_training(training, order);
  report.train = look_at(*data.train, options);
  if (data.validation) report.validation = look_at(*data.validation, options);
  const bool skips = configuration.train.on_broken == OnBroken::skip;
  const RunData skipping = skips ? open_run_data(configuration, seed, options.ignored) : RunData{};
  const TrainingData read(skips ? *skipping.train : *data.train, configuration.augment, {seed, 0});
  report.reading = speeds_of(read, order, options.seconds_of_reading);
  return report;
}

}  // namespace onebatch
