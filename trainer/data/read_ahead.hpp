// A step's samples, read ahead where they were, with the time for which whoever trains has waited for them.
#pragma once

#include "trainer/data/loader.hpp"
#include "trainer/device/compute_device.hpp"
#include "trainer/events/timeline.hpp"

namespace onebatch {

/// Where the device was before and after the host had waited for samples, and how long the host did.
struct DataWait {
  std::shared_ptr<const DeviceMoment> begin;
  std::shared_ptr<const DeviceMoment> end;
  double seconds = 0.0;
};

/// Sequences' length where they are not all padded to the longest of a global batch.
constexpr std::int64_t k_longest_in_it = -1;

/// Who has read ahead, and for which epoch; none: nobody has.
struct Ahead {
  Loader* loader = nullptr;
  std::int64_t epoch = 0;
};

/// What a worker reads for a request, and whoever trains where none has. `length`: as ReadRequest's.
Batch read_of(const Dataset& data, std::span<const std::int64_t> samples, at::ScalarType type, std::int64_t length);

/// The same samples as `data`, of which it keeps a reference. read() pads to `length` (or k_longest_in_it), takes what
/// was read ahead, and reads by itself what was not.
class ReadAhead final : public Dataset {
 public:
  ReadAhead(const Dataset& data, ComputeDevice& device, Timeline* timeline, const Ahead& ahead, std::int64_t length)
      : data_(data), device_(device), timeline_(timeline), ahead_(ahead), length_(length) {}

  std::int64_t size() const override { return data_.size(); }
  std::vector<std::int64_t> sample_shape() const override { return data_.sample_shape(); }
  std::int64_t num_classes() const override { return data_.num_classes(); }
  std::optional<LabelRange> labels() const override { return data_.labels(); }
  std::optional<std::int64_t> class_of(std::int64_t sample) const override { return data_.class_of(sample); }
  std::span<const std::int64_t> lengths() const override { return data_.lengths(); }
  std::string name_of(std::size_t tensor) const override { return data_.name_of(tensor); }
  std::vector<std::string> class_names() const override { return data_.class_names(); }
  std::int64_t origin_of(std::int64_t sample) const override { return data_.origin_of(sample); }
  Batch gather(std::span<const std::int64_t> indices, at::ScalarType type) const override {
    return data_.gather(indices, type);
  }
  Batch gather_cut(std::span<const std::int64_t> indices, at::ScalarType type, std::int64_t length) const override {
    return data_.gather_cut(indices, type, length);
  }
  /// Throws what reading throws, with the sample that it is about where that is found.
  Batch read(std::span<const std::int64_t> indices, at::ScalarType type) const override;
  std::vector<std::int64_t> costliest(std::int64_t count) const override { return data_.costliest(count); }

  /// One for each read().
  [[nodiscard]] const std::vector<DataWait>& waits() const { return waits_; }
  [[nodiscard]] double waited_seconds() const;

 private:
  [[nodiscard]] Batch taken_or_read(const ReadRequest& request, at::ScalarType type) const;
  void find_sample_that_fails(const ReadRequest& request, at::ScalarType type) const;

  const Dataset& data_;
  ComputeDevice& device_;
  Timeline* timeline_;
  Ahead ahead_;
  std::int64_t length_;
  mutable std::vector<DataWait> waits_;  // of the one thread that trains
};

}  // namespace onebatch
