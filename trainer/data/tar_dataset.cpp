// Shards in WebDataset's layout: a sample is the files of one name in a tar file, and each of its tensors one of them.
// An index of all shards is made at the start, so that samples are read by number, in the order of the epoch, as from
// any other data.
#include "trainer/base/error.hpp"
#include "trainer/base/shape_text.hpp"
#include "trainer/data/dataset_kind.hpp"
#include "trainer/data/decoders.hpp"
#include "trainer/data/file_list.hpp"
#include "trainer/data/label_search.hpp"
#include "trainer/data/tar_file.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace onebatch {
namespace {

constexpr const char* k_extension = ".tar";

std::vector<std::string> endings_of(const DatasetConfiguration& data) {
  std::vector<std::string> endings = data.inputs;
  if (!data.target.empty()) endings.push_back(data.target);
  return endings;
}

class TarDataset final : public Dataset {
 public:
  TarDataset(const DatasetConfiguration& configuration, std::optional<std::int64_t> ignored)
      : endings_(endings_of(configuration)), num_inputs_(configuration.inputs.size()) {
    for (const std::string& ending : endings_) decoders_.push_back(decoder_of(ending));
    const auto files = files_of(configuration, k_extension);
    for (const auto& file : files) add_shard(file, between_reads(files.size()));
    if (size_ == 0) throw UserError(files.front().string() + " holds no sample");
    for (std::size_t i = 0; i < endings_.size(); ++i) likes_.push_back(decoded(i, 0));
    if (has_labels()) find_labels(ignored);
  }

  std::int64_t size() const override { return size_; }
  std::vector<std::int64_t> sample_shape() const override { return likes_.front().sizes().vec(); }
  std::int64_t num_classes() const override { return num_classes_; }
  std::optional<LabelRange> labels() const override { return labels_; }
  std::string name_of(std::size_t tensor) const override { return "the files that end in ." + endings_.at(tensor); }

  Batch gather(std::span<const std::int64_t> indices, at::ScalarType type) const override {
    Batch batch;
    for (std::size_t i = 0; i < endings_.size(); ++i) {
      const at::Tensor rows = stacked(i, indices).to(likes_[i].is_floating_point() ? type : at::kLong);
      if (i < num_inputs_) batch.inputs.push_back(rows);
      if (i >= num_inputs_) batch.targets = rows;
    }
    return batch;
  }

 private:
  struct Shard {
    DataFile file;
    std::vector<TarPlace> places;  // [samples, endings]
    std::int64_t first_sample;
  };

  void add_shard(const std::filesystem::path& path, Between between) {
    DataFile file(path, between);
    auto places = index_samples(file, endings_);
    const auto samples = static_cast<std::int64_t>(places.size() / endings_.size());
    if (samples > 0) shards_.push_back({std::move(file), std::move(places), size_});
    size_ += samples;
  }

  [[nodiscard]] bool has_labels() const { return endings_.size() > num_inputs_ && !likes_.back().is_floating_point(); }

  at::Tensor decoded(std::size_t ending, std::int64_t sample) const {
    if (sample < 0 || sample >= size_)
      throw std::out_of_range(fmt::format("sample {} of a data set of {}", sample, size_));
    const Shard& shard = *std::prev(std::ranges::upper_bound(shards_, sample, {}, &Shard::first_sample));
    const auto row = static_cast<std::size_t>(sample - shard.first_sample);
    const TarPlace& place = shard.places[row * endings_.size() + ending];
    std::vector<std::byte> bytes(static_cast<std::size_t>(place.bytes));
    shard.file.read(place.begin, bytes);
    try {
      return decoders_[ending](bytes);
    } catch (const UserError& error) {
      throw UserError(fmt::format("{}: the .{} of sample {}, at byte {}, {}", shard.file.path().string(),
                                  endings_[ending], sample, place.begin, error.what()));
    }
  }

  at::Tensor stacked(std::size_t ending, std::span<const std::int64_t> indices) const {
    const at::Tensor& like = likes_[ending];
    std::vector<at::Tensor> rows;
    for (const std::int64_t sample : indices) {
      rows.push_back(decoded(ending, sample));
      const at::Tensor& row = rows.back();
      if (row.sizes() != like.sizes() || row.scalar_type() != like.scalar_type())
        throw UserError(fmt::format("the .{} of sample {} is {} {}, and that of sample 0 {} {}: all must be alike",
                                    endings_[ending], sample, at::toString(row.scalar_type()),
                                    shape_text(row.sizes().vec()), at::toString(like.scalar_type()),
                                    shape_text(like.sizes().vec())));
    }
    if (!rows.empty()) return at::stack(rows);
    std::vector<std::int64_t> shape = like.sizes().vec();
    shape.insert(shape.begin(), 0);
    return at::empty(shape, like.options());
  }

  void find_labels(std::optional<std::int64_t> ignored) {
    LabelSearch search(ignored);
    for (std::int64_t sample = 0; sample < size_; ++sample)
      search.look_through(sample, stacked(num_inputs_, {&sample, 1}).to(at::kLong));
    labels_ = search.found();
    num_classes_ = search.num_classes();
  }

  std::vector<std::string> endings_;
  std::size_t num_inputs_;
  std::vector<Decoder> decoders_;
  std::vector<Shard> shards_;
  std::int64_t size_ = 0;
  std::vector<at::Tensor> likes_;  // the first sample's
  std::optional<LabelRange> labels_;
  std::int64_t num_classes_ = 0;
};

void check_tar(const DatasetConfiguration& data, const CheckRequest& request) {
  if (data.path.empty() && data.files.empty())
    request.complain("path", "is needed for data.kind = \"tar\": a file, a pattern, or a folder of *.tar");
  refuse_same_files(data, request);
}

std::int64_t samples_in_shards(const DatasetConfiguration& data) {
  const std::vector<std::string> endings = endings_of(data);
  std::int64_t samples = 0;
  for (const auto& file : files_of(data, k_extension))
    samples += static_cast<std::int64_t>(index_samples(DataFile(file), endings).size() / endings.size());
  return samples;
}

}  // namespace

DatasetKind tar_dataset_kind() {
  DatasetKind kind;
  kind.name = "tar";
  kind.shares = {"files", "inputs", "target"};
  kind.check = check_tar;
  kind.open = [](const DatasetConfiguration& data, const OpenRequest& request) {
    return std::make_unique<TarDataset>(data, request.ignored);
  };
  kind.count_samples = samples_in_shards;
  return kind;
}

}  // namespace onebatch
