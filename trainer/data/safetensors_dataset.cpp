// Tensors of a safetensors file as samples: the first dimension counts them. Any number of inputs, targets of any
// shape, a weight for each target, and sequences of unlike lengths in tensors that are padded to the longest.
#include "trainer/base/error.hpp"
#include "trainer/base/shape_text.hpp"
#include "trainer/data/dataset_kind.hpp"
#include "trainer/data/label_search.hpp"
#include "trainer/data/padding.hpp"
#include "trainer/io/safetensors.hpp"
#include "trainer/io/tensor_file.hpp"
#include "trainer/settings/key_types.hpp"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <stdexcept>

namespace onebatch {
namespace {

// Rows in plain memory, outside of the device's budget.
class Column {
 public:
  Column(const std::filesystem::path& file, const SafetensorsHeader& header, const std::string& name, const char* key) {
    const auto found = std::find_if(header.entries.begin(), header.entries.end(),
                                    [&](const SafetensorsEntry& entry) { return entry.name == name; });
    if (found == header.entries.end()) {
      std::string names;
      for (const auto& entry : header.entries) names += (names.empty() ? "" : ", ") + entry.name;
      throw UserError(file.string() + " holds no tensor \"" + name + "\": write one of " + names + " for " + key);
    }
    const auto type = type_of_dtype(found->dtype);
    if (!type)
      throw UserError(file.string() + ": tensor " + name + " has the type " + found->dtype +
                      ", which is not supported");
    if (found->shape.empty() || found->shape[0] == 0)
      throw UserError(file.string() + ": tensor " + name + " holds no samples: its first dimension must count them");
    if (std::ranges::find(found->shape, 0) != found->shape.end())
      throw UserError(file.string() + ": tensor " + name + " " + shape_text(found->shape) +
                      " holds no values: write another for " + key);
    name_ = std::string(key) + " \"" + name + "\"";
    type_ = *type;
    shape_ = found->shape;
    bytes_ = read_safetensors_entry(file, header, *found);
    row_bytes_ = bytes_.size() / static_cast<std::size_t>(shape_[0]);
  }

  /// With the key that asks for it: data.target "y".
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::vector<std::int64_t>& shape() const { return shape_; }
  [[nodiscard]] bool floating() const { return at::isFloatingType(type_); }

  [[nodiscard]] std::int64_t row_values() const {
    return std::accumulate(shape_.begin() + 1, shape_.end(), std::int64_t{1}, std::multiplies<>());
  }

  /// Rows, of a sequence that is `longest` long the first `length` elements; whatever is no integer as `type`.
  [[nodiscard]] at::Tensor rows(std::span<const std::int64_t> indices, std::int64_t longest, std::int64_t length,
                                at::ScalarType type) const {
    std::vector<std::int64_t> shape = shape_;
    shape[0] = static_cast<std::int64_t>(indices.size());
    std::size_t bytes = row_bytes_;
    if (shape.size() > 1 && shape[1] == longest && length < longest) {
      bytes = bytes / static_cast<std::size_t>(longest) * static_cast<std::size_t>(length);
      shape[1] = length;
    }
    const at::Tensor rows = at::empty(shape, at::TensorOptions().dtype(type_));
    auto* to = static_cast<std::byte*>(rows.mutable_data_ptr());
    for (const std::int64_t index : indices) {
      if (index < 0 || index >= shape_[0])
        throw std::out_of_range(fmt::format("sample {} of a data set of {}", index, shape_[0]));
      std::memcpy(to, bytes_.data() + static_cast<std::size_t>(index) * row_bytes_, bytes);
      to += bytes;
    }
    return rows.to(floating() ? type : at::kLong);
  }

  /// Visits all rows, some at a time: the first of them and their values [some, ...].
  template <typename Visit>
  void for_each_part(at::ScalarType type, const Visit& visit) const {
    constexpr std::int64_t k_rows = 4096;
    std::vector<std::int64_t> some;
    for (std::int64_t first = 0; first < shape_[0]; first += k_rows) {
      some.resize(static_cast<std::size_t>(std::min(k_rows, shape_[0] - first)));
      std::iota(some.begin(), some.end(), first);
      visit(first, rows(some, 0, 0, type));
    }
  }

  /// All values of a column of integers.
  [[nodiscard]] std::vector<std::int64_t> integers() const {
    std::vector<std::int64_t> values;
    for_each_part(at::kLong, [&](std::int64_t /*first*/, const at::Tensor& part) {
      values.insert(values.end(), part.const_data_ptr<std::int64_t>(),
                    part.const_data_ptr<std::int64_t>() + part.numel());
    });
    return values;
  }

 private:
  std::string name_;
  at::ScalarType type_ = at::kFloat;
  std::vector<std::int64_t> shape_;
  std::vector<std::byte> bytes_;
  std::size_t row_bytes_ = 0;
};

class SafetensorsDataset final : public Dataset {
 public:
  SafetensorsDataset(const DatasetConfiguration& configuration, std::optional<std::int64_t> ignored)
      : file_(configuration.path) {
    const SafetensorsHeader header = read_safetensors_header(file_);
    for (const std::string& name : configuration.inputs) inputs_.emplace_back(file_, header, name, "data.inputs");
    for (const Column& input : inputs_) check_count(input);
    if (!configuration.target.empty()) add(target_, header, configuration.target, "data.target");
    if (!configuration.weights.empty()) add(weights_, header, configuration.weights, "data.weights");
    if (!configuration.lengths.empty()) read_lengths(header, configuration.lengths);
    if (target_ && !target_->floating()) find_labels(ignored);
    if (!weights_) return;
    if (!target_ || weights_->shape() != target_->shape() || !weights_->floating())
      throw UserError(file_.string() + ": data.weights = \"" + configuration.weights +
                      "\" must be floating-point numbers of the target's shape");
    check_weights();
  }

  std::int64_t size() const override { return inputs_.front().shape()[0]; }
  std::vector<std::int64_t> sample_shape() const override {
    return {inputs_.front().shape().begin() + 1, inputs_.front().shape().end()};
  }
  std::int64_t num_classes() const override { return num_classes_; }

  std::optional<LabelRange> labels() const override { return labels_; }
  std::span<const std::int64_t> lengths() const override { return lengths_; }

  std::optional<std::int64_t> class_of(std::int64_t sample) const override {
    if (!target_ || target_->floating() || target_->row_values() != 1) return std::nullopt;
    return target_->rows({&sample, 1}, longest_, longest_, at::kLong).item<std::int64_t>();
  }

  std::string name_of(std::size_t tensor) const override {
    if (tensor < inputs_.size()) return inputs_[tensor].name();
    return (tensor == inputs_.size() && target_ ? *target_ : weights_.value()).name();
  }

  Batch gather(std::span<const std::int64_t> indices, at::ScalarType type) const override {
    return gather_cut(indices, type, indices.empty() ? longest_ : longest_of(*this, indices));
  }

  Batch gather_cut(std::span<const std::int64_t> indices, at::ScalarType type, std::int64_t length) const override {
    Batch batch;
    for (const Column& input : inputs_) batch.inputs.push_back(input.rows(indices, longest_, length, type));
    if (target_) batch.targets = target_->rows(indices, longest_, length, type);
    if (weights_) batch.weights = weights_->rows(indices, longest_, length, type);
    return batch;
  }

  std::vector<std::int64_t> costliest(std::int64_t count) const override {
    if (lengths_.empty()) return Dataset::costliest(count);
    std::vector<std::int64_t> order(lengths_.size());
    std::iota(order.begin(), order.end(), std::int64_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
      return lengths_[static_cast<std::size_t>(a)] > lengths_[static_cast<std::size_t>(b)];
    });
    std::vector<std::int64_t> samples(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < samples.size(); ++i) samples[i] = order[i % order.size()];
    return samples;
  }

 private:
  void check_count(const Column& column) const {
    if (column.shape()[0] == size()) return;
    throw UserError(fmt::format("{}: {} has {} samples, {} has {}", file_.string(), column.name(), column.shape()[0],
                                inputs_.front().name(), size()));
  }

  void add(std::optional<Column>& to, const SafetensorsHeader& header, const std::string& name, const char* key) const {
    to.emplace(file_, header, name, key);
    check_count(*to);
  }

  void read_lengths(const SafetensorsHeader& header, const std::string& name) {
    const Column column(file_, header, name, "data.lengths");
    check_count(column);
    if (column.floating() || column.shape().size() != 1 || inputs_.front().shape().size() < 2)
      throw UserError(file_.string() + ": data.lengths = \"" + name +
                      "\" must be one whole number per sample, and the first input [samples, longest, ...]");
    lengths_ = column.integers();
    longest_ = inputs_.front().shape()[1];
    for (const std::int64_t length : lengths_) {
      if (length < 1 || length > longest_)
        throw UserError(fmt::format("{}: {} holds the length {}, but {} has room for 1 to {}", file_.string(), name,
                                    length, inputs_.front().name(), longest_));
    }
  }

  void find_labels(std::optional<std::int64_t> ignored) {
    LabelSearch search(ignored);
    target_->for_each_part(at::kLong,
                           [&](std::int64_t first, const at::Tensor& part) { search.look_through(first, part); });
    labels_ = search.found();
    num_classes_ = search.num_classes();
  }

  void check_weights() const {
    weights_->for_each_part(at::kDouble, [&](std::int64_t first, const at::Tensor& part) {
      const at::Tensor wrong = part.view({part.size(0), -1})
                                   .ge(0.0)
                                   .logical_and(part.view({part.size(0), -1}).isfinite())
                                   .logical_not()
                                   .any(1);
      if (!wrong.any().item<bool>()) return;
      const std::int64_t row = wrong.to(at::kInt).argmax().item<std::int64_t>();
      throw UserError(fmt::format("{}: sample {} of {} holds {:g}: weights are finite numbers from 0", file_.string(),
                                  first + row, weights_->name(), worst_weight(part[row])));
    });
  }

  static double worst_weight(const at::Tensor& weights) {
    const at::Tensor finite = weights.isfinite();
    return (finite.all().item<bool>() ? weights : weights.flatten().masked_select(finite.flatten().logical_not()))
        .min()
        .item<double>();
  }

  std::filesystem::path file_;
  std::vector<Column> inputs_;
  std::optional<Column> target_;
  std::optional<Column> weights_;
  std::optional<LabelRange> labels_;
  std::vector<std::int64_t> lengths_;
  std::int64_t longest_ = 0;
  std::int64_t num_classes_ = 0;
};

constexpr Changes k_both = Changes::result | Changes::probe;

std::vector<KeyOf<DatasetConfiguration>> safetensors_keys() {
  using D = DatasetConfiguration;
  return {
      names_key({"inputs", k_both,
                 "safetensors: the tensors that the model takes, in its order, each `[samples, ...]`; whole numbers "
                 "arrive as int64, others in the run's precision"},
                &D::inputs),
      text_key({"target", k_both,
                "safetensors: `[samples]`, or `[samples, ...]` with a label per token or pixel; `\"\"` = none, for a "
                "loss that needs none. Whole numbers are class indices from 0, looked through before the first step"},
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
               &D::lengths)};
}

void check_safetensors(const DatasetConfiguration& data, const CheckRequest& request) {
  const auto& validation = request.configuration.data.validation;
  if (data.path.empty()) request.complain("path", "is needed for data.kind = \"safetensors\": the file");
  const bool split = request.configuration.data.sampling.validation_fraction > 0.0;
  if (validation && !split && validation->kind == "safetensors" && validation->path == data.path)
    request.complain("validation.path",
                     "is the training data's file: write another, or data.validation.fraction = 0.1 "
                     "for a part of it, or leave [data.validation] out");
  if (data.target.empty() && !data.weights.empty()) request.complain("weights", "are the target's: write data.target");
}

std::int64_t samples_in_file(const DatasetConfiguration& data) {
  for (const SafetensorsEntry& entry : read_safetensors_header(data.path).entries) {
    if (entry.name == data.inputs.front() && !entry.shape.empty()) return entry.shape[0];
  }
  throw UserError(data.path + " holds no tensor \"" + data.inputs.front() + "\" of samples");
}

}  // namespace

DatasetKind safetensors_dataset_kind() {
  DatasetKind kind;
  kind.name = "safetensors";
  kind.keys = safetensors_keys();
  kind.check = check_safetensors;
  kind.open = [](const DatasetConfiguration& data, const OpenRequest& request) {
    return std::make_unique<SafetensorsDataset>(data, request.ignored);
  };
  kind.count_samples = samples_in_file;
  return kind;
}

}  // namespace onebatch
