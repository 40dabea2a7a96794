// Tensors of safetensors files as samples: the first dimension counts them. Any number of inputs, targets of any shape,
// a weight for each target, and sequences of unlike lengths: padded in the file, or one after another and padded here.
#include "trainer/base/error.hpp"
#include "trainer/data/dataset_kind.hpp"
#include "trainer/data/file_list.hpp"
#include "trainer/data/input_type.hpp"
#include "trainer/data/label_search.hpp"
#include "trainer/data/padding.hpp"
#include "trainer/data/sequences.hpp"
#include "trainer/settings/key_types.hpp"

#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

namespace onebatch {
namespace {

constexpr const char* k_extension = ".safetensors";
constexpr std::int64_t k_no_label = -100;  // of padding, where the loss is the model's own: PyTorch's

// A column, and whether its rows are the values of sequences.
struct Part {
  TensorColumn column;
  bool values = false;
};

class SafetensorsDataset final : public Dataset {
 public:
  SafetensorsDataset(const DatasetConfiguration& configuration, std::optional<std::int64_t> ignored)
      : pieces_(open_pieces(files_of(configuration, k_extension))), ignored_(ignored) {
    if (!configuration.offsets.empty()) sequences_ = read_sequences(pieces_, configuration.offsets);
    for (const std::string& name : configuration.inputs) inputs_.push_back(part(name, "data.inputs"));
    if (!configuration.target.empty()) target_ = part(configuration.target, "data.target");
    if (!configuration.weights.empty()) weights_ = part(configuration.weights, "data.weights");
    if (!configuration.lengths.empty()) read_lengths(configuration.lengths);
    if (sequences_) set_longest();
    if (!configuration.mean.empty()) set_pixels({configuration.mean, configuration.deviation});
    if (target_ && !target_->column.floating()) find_labels();
    if (weights_) check_weights(configuration.weights);
    set_digest();
  }

  std::int64_t size() const override {
    return sequences_ ? static_cast<std::int64_t>(sequences_->lengths.size()) : inputs_.front().column.size();
  }
  std::vector<std::int64_t> sample_shape() const override {
    std::vector<std::int64_t> shape = inputs_.front().column.shape();
    if (!inputs_.front().values) return {shape.begin() + 1, shape.end()};
    shape[0] = longest_;
    return shape;
  }
  std::int64_t num_classes() const override { return num_classes_; }
  std::optional<LabelRange> labels() const override { return labels_; }
  std::span<const std::int64_t> lengths() const override { return sequences_ ? sequences_->lengths : lengths_; }

  std::string digest() const override { return digest_; }

  std::optional<std::int64_t> class_of(std::int64_t sample) const override {
    if (!target_ || target_->values || target_->column.floating()) return std::nullopt;
    const at::Tensor target = target_->column.rows({&sample, 1}, 0, 0);
    return target.numel() == 1 ? std::optional(target.to(at::kLong).item<std::int64_t>()) : std::nullopt;
  }

  std::string name_of(std::size_t tensor) const override {
    if (tensor < inputs_.size()) return inputs_[tensor].column.name();
    if (tensor == inputs_.size() && target_) return target_->column.name();
    return weights_ ? weights_->column.name() : "the weights of padding";
  }

  Batch gather(std::span<const std::int64_t> indices, at::ScalarType type) const override {
    return read(indices, type).to_numbers(type);
  }

  Batch read(std::span<const std::int64_t> indices, at::ScalarType type) const override {
    return cut(indices, type, indices.empty() ? longest_ : longest_of(*this, indices));
  }

  Batch gather_cut(std::span<const std::int64_t> indices, at::ScalarType type, std::int64_t length) const override {
    return cut(indices, type, length).to_numbers(type);
  }

  std::vector<std::int64_t> costliest(std::int64_t count) const override {
    const auto of = lengths();
    if (of.empty()) return Dataset::costliest(count);
    std::vector<std::int64_t> order(of.size());
    std::iota(order.begin(), order.end(), std::int64_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
      return of[static_cast<std::size_t>(a)] > of[static_cast<std::size_t>(b)];
    });
    std::vector<std::int64_t> samples(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < samples.size(); ++i) samples[i] = order[i % order.size()];
    return samples;
  }

 private:
  [[nodiscard]] std::string file() const { return pieces_.front().file->path().string(); }

  // Each file has as many rows of it as of the first input, or, of values, as its offsets say.
  Part part(const std::string& name, const std::string& key) const {
    Part made{TensorColumn(pieces_, name, key), false};
    made.values = sequences_ && has_rows(made.column, sequences_->values_of);
    if (made.values || (sequences_ && has_rows(made.column, sequences_->samples_of))) return made;
    for (std::size_t piece = 0; piece < pieces_.size(); ++piece) {
      const std::int64_t rows = made.column.rows_of(piece);
      if (sequences_)
        throw UserError(fmt::format("{}: {} has {} rows, but data.offsets tells of {} sequences with {} values",
                                    made.column.file_of(piece), made.column.name(), rows, sequences_->samples_of[piece],
                                    sequences_->values_of[piece]));
      if (!inputs_.empty() && rows != inputs_.front().column.rows_of(piece))
        throw UserError(fmt::format("{}: {} has {} samples, {} has {}", made.column.file_of(piece), made.column.name(),
                                    rows, inputs_.front().column.name(), inputs_.front().column.rows_of(piece)));
    }
    return made;
  }

  static bool has_rows(const TensorColumn& column, const std::vector<std::int64_t>& of_pieces) {
    for (std::size_t piece = 0; piece < of_pieces.size(); ++piece) {
      if (column.rows_of(piece) != of_pieces[piece]) return false;
    }
    return true;
  }

  Batch cut(std::span<const std::int64_t> indices, at::ScalarType type, std::int64_t length) const {
    Batch batch;
    for (const Part& input : inputs_) {
      const bool pixels = pixels_ && batch.inputs.empty();
      const at::ScalarType made = pixels ? at::kByte : input_type(input.column.type(), type);
      batch.inputs.push_back(values(input, indices, length, 0).to(made));
    }
    batch.pixels = pixels_;
    if (target_) batch.targets = targets(indices, length).to(target_type(target_->column.type(), type));
    if (weights_) batch.weights = values(*weights_, indices, length, 0).to(type);
    if (!weights_ && target_ && target_->values && target_->column.floating())
      batch.weights = weights_of_padding(batch.targets, indices);
    return batch;
  }

  at::Tensor values(const Part& of, std::span<const std::int64_t> indices, std::int64_t length,
                    std::int64_t padding) const {
    if (!of.values) return of.column.rows(indices, lengths_.empty() ? 0 : longest_, length);
    std::vector<RowRun> runs;
    for (const std::int64_t index : indices) {
      if (index < 0 || index >= size())
        throw std::out_of_range(fmt::format("sample {} of a data set of {}", index, size()));
      runs.push_back(sequences_->runs[static_cast<std::size_t>(index)]);
    }
    return of.column.padded(runs, length, padding);
  }

  // In 64 bits before it is padded: the label that counts for nothing may not fit into fewer.
  at::Tensor targets(std::span<const std::int64_t> indices, std::int64_t length) const {
    at::Tensor made = values(*target_, indices, length, 0);
    if (!target_->values || target_->column.floating()) return made;
    made = made.to(at::kLong);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const std::int64_t own = std::min(length, sequences_->lengths[static_cast<std::size_t>(indices[i])]);
      made[static_cast<std::int64_t>(i)].narrow(0, own, length - own).fill_(ignored_.value_or(k_no_label));
    }
    return made;
  }

  at::Tensor weights_of_padding(const at::Tensor& targets, std::span<const std::int64_t> indices) const {
    const at::Tensor made = at::zeros(targets.sizes(), targets.options());
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const std::int64_t own = std::min(made.size(1), sequences_->lengths[static_cast<std::size_t>(indices[i])]);
      made[static_cast<std::int64_t>(i)].narrow(0, 0, own).fill_(1.0);
    }
    return made;
  }

  void read_lengths(const std::string& name) {
    const TensorColumn column = part(name, "data.lengths").column;
    const auto& shape = inputs_.front().column.shape();
    if (column.floating() || column.shape().size() != 1 || shape.size() < 2)
      throw UserError(file() + ": data.lengths = \"" + name +
                      "\" must be one whole number per sample, and the first input [samples, longest, ...]");
    lengths_ = column.integers();
    longest_ = shape[1];
    for (const std::int64_t length : lengths_) {
      if (length < 1 || length > longest_)
        throw UserError(fmt::format("{}: {} holds the length {}, but {} has room for 1 to {}", file(), name, length,
                                    inputs_.front().column.name(), longest_));
    }
  }

  void set_digest() {
    ChecksumStream stream;
    for (const Part& input : inputs_) input.column.add_to(stream);
    for (const std::optional<Part>* part : {&target_, &weights_}) {
      if (*part) (*part)->column.add_to(stream);
    }
    stream.update(std::as_bytes(lengths()));
    digest_ = to_text(stream.value());
  }

  void set_longest() {
    longest_ = *std::max_element(sequences_->lengths.begin(), sequences_->lengths.end());
    if (inputs_.front().values) return;
    throw UserError(file() + ": data.offsets is for sequences: the first input must hold their values, [values, ...]");
  }

  void set_pixels(PixelScale scale) {
    const TensorColumn& images = inputs_.front().column;
    const auto& shape = images.shape();
    if (images.type() != at::kByte || shape.size() != 4 || !lengths().empty())
      throw UserError(file() + ": data.mean is for images in 8 bits, uint8 [samples, C, H, W]: " + images.name() +
                      " holds something else");
    const auto channels = static_cast<std::size_t>(shape[1]);
    if (scale.mean.size() != 1 && scale.mean.size() != channels)
      throw UserError(fmt::format("{}: data.mean and data.std have {} numbers, but images have {} channels", file(),
                                  scale.mean.size(), channels));
    pixels_ = std::move(scale);
  }

  // Rows of values are not samples.
  [[nodiscard]] std::int64_t sample_of_row(const Part& of, std::int64_t row) const {
    return of.values ? sample_of(*sequences_, row) : row;
  }

  void find_labels() {
    LabelSearch search(ignored_);
    target_->column.for_each_part(
        at::kLong, [&](std::int64_t first, const at::Tensor& some) { search.look_through(first, some); });
    labels_ = search.found();
    num_classes_ = search.num_classes();
    if (!labels_) return;
    for (Label* label : {&labels_->least, &labels_->largest}) label->sample = sample_of_row(*target_, label->sample);
  }

  void check_weights(const std::string& name) const {
    if (!target_ || weights_->column.shape() != target_->column.shape() || !weights_->column.floating())
      throw UserError(file() + ": data.weights = \"" + name +
                      "\" must be floating-point numbers of the target's shape");
    weights_->column.for_each_part(at::kDouble, [&](std::int64_t first, const at::Tensor& some) {
      const at::Tensor rows = some.view({some.size(0), -1});
      const at::Tensor wrong = rows.ge(0.0).logical_and(rows.isfinite()).logical_not().any(1);
      if (!wrong.any().item<bool>()) return;
      const std::int64_t row = wrong.to(at::kInt).argmax().item<std::int64_t>();
      throw UserError(fmt::format("{}: sample {} of {} holds {:g}: weights are finite numbers from 0", file(),
                                  sample_of_row(*weights_, first + row), weights_->column.name(),
                                  worst_weight(rows[row])));
    });
  }

  static double worst_weight(const at::Tensor& weights) {
    const at::Tensor finite = weights.isfinite();
    return (finite.all().item<bool>() ? weights : weights.flatten().masked_select(finite.flatten().logical_not()))
        .min()
        .item<double>();
  }

  std::vector<TensorPiece> pieces_;
  std::optional<std::int64_t> ignored_;
  std::optional<Sequences> sequences_;
  std::vector<Part> inputs_;
  std::optional<Part> target_;
  std::optional<Part> weights_;
  std::optional<PixelScale> pixels_;
  std::optional<LabelRange> labels_;
  std::string digest_;
  std::vector<std::int64_t> lengths_;  // of sequences that are padded in the file
  std::int64_t longest_ = 0;
  std::int64_t num_classes_ = 0;
};

constexpr Changes k_both = Changes::result | Changes::probe;

std::vector<KeyOf<DatasetConfiguration>> safetensors_keys() {
  using D = DatasetConfiguration;
  return {
      names_key(
          {"inputs", k_both,
           "safetensors: the tensors that the model takes, in its order, each `[samples, ...]`; whole numbers "
           "arrive as int64, booleans as they are, others in the run's precision, and at an exported program whole "
           "numbers and booleans in its own types; tar: endings of files, as `[\"npy\"]`"},
          &D::inputs),
      text_key({"target", k_both,
                "safetensors: `[samples]`, or `[samples, ...]` with a label per token or pixel; `\"\"` = none, for a "
                "loss that needs none. Whole numbers are class indices from 0, looked through before the first step; "
                "tar: a file's ending, as `\"cls\"`"},
               &D::target),
      text_key({"weights", k_both,
                "safetensors: how much each label (of squared errors: each number) counts, of the target's shape, "
                "finite and not negative; the loss is divided by what they sum to over the global batch"},
               &D::weights),
      text_key({"lengths", k_both,
                "safetensors: `[samples]`, of sequences that are padded to the longest: a global batch is cut to the "
                "longest in it (every tensor whose second dimension is the first input's), as one batch would be. "
                "Where a few samples' losses and gradients, tried in float64 before the first step, do not depend on "
                "how far they are padded, each micro-batch is cut to its own longest; where they do (BatchNorm, means "
                "or squared errors over padding), that is said. The probe measures the longest"},
               &D::lengths),
      text_key(
          {"offsets", k_both,
           "safetensors: `[samples + 1]` from 0 up, in each file, of sequences that lie one after another without "
           "padding: sample i is the rows offsets[i] … offsets[i + 1] − 1 of each tensor that has as many rows as "
           "the last offset says. They are padded as with `data.lengths`, inputs with 0; padding has no label, and "
           "no weight"},
          &D::offsets),
      names_key({"files", k_both,
                 "safetensors, tar, tokens: several files or patterns, in this order, within `data.path` where that is "
                 "written too. All must hold the same tensors"},
                &D::files)};
}

void check_safetensors(const DatasetConfiguration& data, const CheckRequest& request) {
  if (data.path.empty() && data.files.empty())
    request.complain("path", "is needed for data.kind = \"safetensors\": the file, a pattern, or a folder of them");
  refuse_same_files(data, request);
  if (data.mean.size() != data.deviation.size()) request.complain("std", "must have as many numbers as data.mean");
  if (!data.lengths.empty() && !data.offsets.empty())
    request.complain("offsets", "is for sequences without padding, data.lengths for those with: write one of the two");
  if (data.target.empty() && !data.weights.empty()) request.complain("weights", "are the target's: write data.target");
}

std::int64_t samples_in_files(const DatasetConfiguration& data) {
  const bool offsets = !data.offsets.empty();
  const std::string& name = offsets ? data.offsets : data.inputs.front();
  std::int64_t samples = 0;
  for (const auto& file : files_of(data, k_extension)) {
    const auto entries = read_safetensors_header(file).entries;
    const auto found = std::ranges::find(entries, name, &SafetensorsEntry::name);
    if (found == entries.end() || found->shape.empty())
      throw UserError(file.string() + " holds no tensor \"" + name + "\" of samples");
    samples += found->shape[0] - (offsets ? 1 : 0);
  }
  return samples;
}

}  // namespace

DatasetKind safetensors_dataset_kind() {
  DatasetKind kind;
  kind.name = "safetensors";
  kind.keys = safetensors_keys();
  kind.shares = {"mean", "std"};
  kind.check = check_safetensors;
  kind.open = [](const DatasetConfiguration& data, const OpenRequest& request) {
    return std::make_unique<SafetensorsDataset>(data, request.ignored);
  };
  kind.count_samples = samples_in_files;
  kind.for_each_file = each_file_of(k_extension);
  return kind;
}

}  // namespace onebatch
