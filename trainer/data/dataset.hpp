// A data set: numbered samples that can be gathered into a batch. Samples stay in plain host memory, outside the
// device's budget.
#pragma once

#include "trainer/base/configuration.hpp"

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <span>

namespace onebatch {

constexpr std::int64_t k_most_classes = std::int64_t{1} << 31;

/// What the pixels of 8-bit images [N, channels, H, W] stand for: (pixel / 255 - mean) / deviation, by channel.
struct PixelScale {
  std::vector<double> mean;
  std::vector<double> deviation;
};

/// A batch of N samples.
struct Batch {
  std::vector<at::Tensor> inputs;  // [N, ...] each, as the model takes them
  at::Tensor targets;              // [N, ...] class indices (int64) or numbers; undefined where the data has none
  at::Tensor weights;              // of the targets' shape, what each counts; undefined: 1
  std::optional<PixelScale> pixels = {};  // of the first input, where it is still uint8: to_numbers()
  bool is_pinned = false;  // all of it lies where a GPU takes it from by itself, and nobody writes to it any more

  /// All that are there: inputs, targets, weights.
  [[nodiscard]] std::vector<at::Tensor> tensors() const;
  [[nodiscard]] Batch on(c10::Device device) const;
  /// Pixels become numbers of `type`, where the batch lies; nothing else is changed.
  [[nodiscard]] Batch to_numbers(at::ScalarType type) const;
  /// On the host: a copy that on() can take to a GPU as it is.
  [[nodiscard]] Batch pinned() const;
};

/// What random changes of training samples are drawn from, together with a sample's index: any plan, any number of
/// workers and a resumed run draw the same.
struct Draw {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  /// The samples that are trained with, of whom one is drawn where it is mixed with another; empty: all.
  std::span<const std::int64_t> among = {};
};

/// A class index, and the first sample that holds it.
struct Label {
  std::int64_t value = 0;
  std::int64_t sample = 0;
};

struct LabelRange {
  Label least;
  Label largest;
};

/// Samples by number. Reading changes nothing that can be seen: several threads may read one data set at the same time.
class Dataset {
 public:
  Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;
  virtual ~Dataset() = default;

  [[nodiscard]] virtual std::int64_t size() const = 0;
  /// Of the first input.
  [[nodiscard]] virtual std::vector<std::int64_t> sample_shape() const = 0;
  /// 0 where targets are no class indices.
  [[nodiscard]] virtual std::int64_t num_classes() const = 0;
  /// Of the class indices that count; none where there are none.
  [[nodiscard]] virtual std::optional<LabelRange> labels() const { return std::nullopt; }
  /// Of a sample that has one class index; none of one that has more, or none. The default gathers it.
  [[nodiscard]] virtual std::optional<std::int64_t> class_of(std::int64_t sample) const;
  /// The samples at `indices`, in that order, on the CPU; whatever is no integer of type `type`. The values depend on
  /// the index alone.
  [[nodiscard]] virtual Batch gather(std::span<const std::int64_t> indices, at::ScalarType type) const = 0;
  /// gather(), but images may come in 8 bits, with Batch::pixels.
  [[nodiscard]] virtual Batch read(std::span<const std::int64_t> indices, at::ScalarType type) const {
    return gather(indices, type);
  }
  /// Whether read_changed() is more than read(): the data set crops, flips and colours by itself.
  [[nodiscard]] virtual bool changes_samples() const { return false; }
  /// read(), with the random changes of training.
  [[nodiscard]] virtual Batch read_changed(std::span<const std::int64_t> indices, at::ScalarType type,
                                           const Draw& /*draw*/) const {
    return read(indices, type);
  }
  /// The number that a sample has where it comes from: what is random of it is drawn by that.
  [[nodiscard]] virtual std::int64_t origin_of(std::int64_t sample) const { return sample; }
  /// Of each sample, where they are sequences that are padded to the longest; else empty.
  [[nodiscard]] virtual std::span<const std::int64_t> lengths() const { return {}; }
  /// gather(), but sequences are cut to `length` instead of to the longest among them.
  [[nodiscard]] virtual Batch gather_cut(std::span<const std::int64_t> indices, at::ScalarType type,
                                         std::int64_t length) const;
  /// In the order of their indices; none where classes have no names.
  [[nodiscard]] virtual std::vector<std::string> class_names() const { return {}; }
  /// Tells data apart: files may be others on another node, or other ones when a run goes on, which is refused. The
  /// same in all versions, therefore. Empty where nothing but the size is compared.
  [[nodiscard]] virtual std::string digest() const { return {}; }
  /// What its owner should know before training with it; empty: nothing.
  [[nodiscard]] virtual std::string warning() const { return {}; }
  /// What could not be read and was skipped, a line for each sample, once; empties the list. By any thread.
  [[nodiscard]] virtual std::vector<std::string> take_complaints() const { return {}; }
  [[nodiscard]] virtual bool has_complaints() const { return false; }
  /// How the user calls what is at this place among Batch::tensors().
  [[nodiscard]] virtual std::string name_of(std::size_t tensor) const;
  /// So many samples (with repetition where there are fewer) that take the most memory and time: of unlike lengths the
  /// longest.
  [[nodiscard]] virtual std::vector<std::int64_t> costliest(std::int64_t count) const;
};

/// origin_of() each.
std::vector<std::int64_t> origins_of(const Dataset& data, std::span<const std::int64_t> samples);

enum class Split { train, validation };

struct OpenRequest;

/// Throws UserError that names the file, what is wrong with it and what was expected.
std::unique_ptr<Dataset> open_dataset(const DatasetConfiguration& configuration, const OpenRequest& request);

/// `ignored`: the label that counts for nothing, and is no class. Throws UserError that names the file, what is wrong
/// with it and what was expected.
std::unique_ptr<Dataset> open_dataset(const DatasetConfiguration& configuration, Split split, std::uint64_t seed,
                                      std::optional<std::int64_t> ignored = std::nullopt,
                                      const AugmentConfiguration& augment = {});

}  // namespace onebatch
