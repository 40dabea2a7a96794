// Shards in WebDataset's layout: a sample is the files of one name in a tar file, and each of its tensors one of them.
// An index of all shards is made at the start, so that samples are read by number, in the order of the epoch, as from
// any other data.
#include "trainer/base/error.hpp"
#include "trainer/base/shape_text.hpp"
#include "trainer/data/dataset_kind.hpp"
#include "trainer/data/decoders.hpp"
#include "trainer/data/images_dataset.hpp"
#include "trainer/data/input_type.hpp"
#include "trainer/data/label_search.hpp"
#include "trainer/data/tar_images.hpp"
#include "trainer/images/image_mixing.hpp"
#include "trainer/settings/key_types.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>

#include <utility>

namespace onebatch {
namespace {

std::vector<std::string> columns_of(const DatasetConfiguration& data) {
  std::vector<std::string> columns = data.inputs;
  if (!data.target.empty()) columns.push_back(data.target);
  return columns;
}

class TarDataset final : public Dataset {
 public:
  TarDataset(const DatasetConfiguration& configuration, std::optional<std::int64_t> ignored)
      : columns_(columns_of(configuration)),
        num_inputs_(configuration.inputs.size()),
        decoders_(decoders_of(columns_)),
        shards_(configuration, columns_) {
    for (std::size_t i = 0; i < columns_.size(); ++i) likes_.push_back(decoded(i, 0));
    for (std::size_t i = 0; i < num_inputs_; ++i) widen(i);
    if (has_labels()) find_labels(ignored);
    digest_ = shards_.digest();
  }

  std::int64_t size() const override { return shards_.size(); }
  std::vector<std::int64_t> sample_shape() const override { return likes_.front().sizes().vec(); }
  std::int64_t num_classes() const override { return num_classes_; }
  std::optional<LabelRange> labels() const override { return labels_; }
  // By its label's own file alone.
  std::optional<std::int64_t> class_of(std::int64_t sample) const override {
    if (num_classes_ == 0 || likes_.back().numel() != 1) return std::nullopt;
    return alike(num_inputs_, sample, decoded(num_inputs_, sample)).to(at::kLong).item<std::int64_t>();
  }
  std::string digest() const override { return digest_; }
  std::string name_of(std::size_t tensor) const override {
    return "the files that end in ." + ending_of(columns_.at(tensor));
  }

  Batch gather(std::span<const std::int64_t> indices, at::ScalarType type) const override {
    Batch batch;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const at::Tensor rows = stacked(i, indices);
      if (i < num_inputs_) batch.inputs.push_back(rows.to(input_type(rows.scalar_type(), type)));
      if (i >= num_inputs_) batch.targets = rows.to(target_type(rows.scalar_type(), type));
    }
    return batch;
  }

 private:
  static std::vector<Decoder> decoders_of(const std::vector<std::string>& columns) {
    std::vector<Decoder> decoders;
    for (const std::string& column : columns) decoders.push_back(decoder_of(column));
    return decoders;
  }

  [[nodiscard]] bool has_labels() const { return columns_.size() > num_inputs_ && !likes_.back().is_floating_point(); }

  [[nodiscard]] bool is_json(std::size_t column) const { return columns_[column].find(':') != std::string::npos; }

  at::Tensor decoded(std::size_t column, std::int64_t sample) const {
    const std::vector<std::byte> bytes = shards_.bytes(column, sample);
    try {
      return decoders_[column](bytes);
    } catch (const UserError& error) {
      throw UserError(fmt::format("{} {}", shards_.name(column, sample), error.what()));
    }
  }

  // Numbers of JSON, of which the first sample's may be whole and another's not.
  void widen(std::size_t column) {
    if (!is_json(column)) return;
    for (std::int64_t sample = 0; sample < shards_.size() && !likes_[column].is_floating_point(); ++sample) {
      if (decoded(column, sample).is_floating_point()) likes_[column] = likes_[column].to(at::kDouble);
    }
  }

  // As the first sample's, or an error.
  at::Tensor alike(std::size_t column, std::int64_t sample, at::Tensor row) const {
    const at::Tensor& like = likes_[column];
    if (is_json(column) && like.is_floating_point()) row = row.to(like.scalar_type());  // some write 3.0 as 3
    if (row.sizes() != like.sizes() || row.scalar_type() != like.scalar_type())
      throw UserError(fmt::format("the .{} of sample {} is {} {}, and that of sample 0 {} {}: all must be alike",
                                  columns_[column], sample, at::toString(row.scalar_type()),
                                  shape_text(row.sizes().vec()), at::toString(like.scalar_type()),
                                  shape_text(like.sizes().vec())));
    return row;
  }

  at::Tensor stacked(std::size_t column, std::span<const std::int64_t> indices) const {
    std::vector<at::Tensor> rows;
    for (const std::int64_t sample : indices) rows.push_back(alike(column, sample, decoded(column, sample)));
    if (!rows.empty()) return at::stack(rows);
    const at::Tensor& like = likes_[column];
    std::vector<std::int64_t> shape = like.sizes().vec();
    shape.insert(shape.begin(), 0);
    return at::empty(shape, like.options());
  }

  void find_labels(std::optional<std::int64_t> ignored) {
    LabelSearch search(ignored);
    for (std::int64_t sample = 0; sample < shards_.size(); ++sample) {
      at::Tensor row = decoded(num_inputs_, sample);
      if (is_json(num_inputs_) && row.is_floating_point()) {
        likes_.back() = likes_.back().to(at::kDouble);  // numbers, of which the first were whole
        return;
      }
      search.look_through(sample, alike(num_inputs_, sample, std::move(row)).to(at::kLong).unsqueeze(0));
    }
    labels_ = search.found();
    num_classes_ = search.num_classes();
  }

  std::vector<std::string> columns_;
  std::size_t num_inputs_;
  std::vector<Decoder> decoders_;
  TarShards shards_;
  std::vector<at::Tensor> likes_;  // the first sample's
  std::string digest_;
  std::optional<LabelRange> labels_;
  std::int64_t num_classes_ = 0;
};

bool holds_images(const DatasetConfiguration& data) {
  return is_image_column(data.inputs.front());
}

void check_image_shards(const DatasetConfiguration& data, const CheckRequest& request) {
  if (data.inputs.size() > 1)
    request.complain("inputs", "has something beside images, which are trained with alone: write one ending");
  if (data.target.empty() || is_image_column(data.target))
    request.complain("target", "is needed beside images: the ending of their classes, as \"cls\" or \"json:label\"");
  check_images(data, request);
}

bool changes_image_files(const AugmentConfiguration& augment) {
  return augment.random_resized_crop || augment.brightness > 0.0 || augment.contrast > 0.0 ||
         augment.saturation > 0.0 || augment.hue > 0.0 || augment.rand_augment_ops > 0 || is_mixing(augment);
}

void check_tar(const DatasetConfiguration& data, const CheckRequest& request) {
  if (data.path.empty() && data.files.empty())
    request.complain("path", "is needed for data.kind = \"tar\": a file, a pattern, or a folder of *.tar");
  refuse_same_files(data, request);
  if (data.inputs.empty()) return request.complain("inputs", "is empty: write the endings of what the model takes");
  if (holds_images(data)) return check_image_shards(data, request);
  if (!data.image_size.empty())
    request.complain("image_size",
                     "is of images, and data.inputs names none: write [\"jpg\"], [\"png\"] or [\"webp\"]");
  if (&data == &request.configuration.data.train && changes_image_files(request.configuration.data.augment))
    request.complain("augment", "changes images, and data.inputs names none: write [\"jpg\"], [\"png\"] or [\"webp\"]");
}

}  // namespace

DatasetKind tar_dataset_kind() {
  DatasetKind kind;
  kind.name = "tar";
  kind.shares = {"files", "inputs", "target", "image_size", "channels", "resize", "mean", "std", "on_broken"};
  kind.keys = {integer_key({"spool_mb", Changes::nothing,
                            "tar: how much of the local disk (TMPDIR) what `pipe:` commands give may take, together"},
                           1, std::int64_t{1} << 40, k_spool_mb)};
  kind.check = check_tar;
  kind.open = [](const DatasetConfiguration& data, const OpenRequest& request) -> std::unique_ptr<Dataset> {
    if (holds_images(data)) return images_dataset(data, tar_images(data), request);
    return std::make_unique<TarDataset>(data, request.ignored);
  };
  kind.count_samples = [](const DatasetConfiguration& data) { return samples_in_shards(data, columns_of(data)); };
  kind.for_each_file = each_file_of(k_shard_extension);
  return kind;
}

}  // namespace onebatch
