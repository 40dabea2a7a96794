#include "trainer/data/dataset.hpp"

#include "trainer/base/error.hpp"
#include "trainer/base/transfer.hpp"
#include "trainer/data/count_samples.hpp"
#include "trainer/data/dataset_kind.hpp"
#include "trainer/data/file_list.hpp"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <functional>
#include <utility>

namespace onebatch {

std::vector<at::Tensor> Batch::tensors() const {
  std::vector<at::Tensor> all = inputs;
  for (const at::Tensor& tensor : {targets, weights}) {
    if (tensor.defined()) all.push_back(tensor);
  }
  return all;
}

namespace {

Batch with_each(const Batch& batch, const std::function<at::Tensor(const at::Tensor&)>& change) {
  Batch changed = batch;
  for (at::Tensor& input : changed.inputs) input = change(input);
  if (batch.targets.defined()) changed.targets = change(batch.targets);
  if (batch.weights.defined()) changed.weights = change(batch.weights);
  return changed;
}

}  // namespace

Batch Batch::on(c10::Device device) const {
  Batch moved = with_each(*this, [&](const at::Tensor& tensor) {
    return is_pinned ? upload_pinned(tensor, device) : upload(tensor, device);
  });
  moved.is_pinned = false;
  return moved;
}

Batch Batch::pinned() const {
  Batch copied = with_each(*this, [](const at::Tensor& tensor) { return pinned_like(tensor).copy_(tensor); });
  copied.is_pinned = true;
  return copied;
}

Batch Batch::to_numbers(at::ScalarType type) const {
  if (!pixels) return *this;
  Batch made = *this;
  made.pixels.reset();
  at::Tensor& images = made.inputs.front();
  // In float32 and not in the 16 bits that may be asked for.
  const at::ScalarType computed = filled_as(type);
  const auto by_channel = [&](const std::vector<double>& of) {
    return upload(at::tensor(of, at::kDouble).to(computed).view({1, -1, 1, 1}), images.device());
  };
  images = images.to(computed).div_(255.0).sub_(by_channel(pixels->mean)).div_(by_channel(pixels->deviation)).to(type);
  return made;
}

Batch Dataset::gather_cut(std::span<const std::int64_t> indices, at::ScalarType type, std::int64_t /*length*/) const {
  return gather(indices, type);
}

std::optional<std::int64_t> Dataset::class_of(std::int64_t sample) const {
  const at::Tensor target = gather({&sample, 1}, at::kFloat).targets;
  if (!target.defined() || target.scalar_type() != at::kLong || target.numel() != 1) return std::nullopt;
  return target.item<std::int64_t>();
}

std::string Dataset::name_of(std::size_t /*tensor*/) const {
  return "the data";
}

std::vector<std::int64_t> Dataset::costliest(std::int64_t count) const {
  std::vector<std::int64_t> samples(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<std::int64_t>(i) % size();
  return samples;
}

std::vector<std::int64_t> origins_of(const Dataset& data, std::span<const std::int64_t> samples) {
  std::vector<std::int64_t> origins(samples.size());
  std::ranges::transform(samples, origins.begin(), [&](std::int64_t sample) { return data.origin_of(sample); });
  return origins;
}

std::unique_ptr<Dataset> open_dataset(const DatasetConfiguration& configuration, Split split, std::uint64_t seed,
                                      std::optional<std::int64_t> ignored, const AugmentConfiguration& augment) {
  return open_dataset(configuration, {split, seed, ignored, augment});
}

std::unique_ptr<Dataset> open_dataset(const DatasetConfiguration& configuration, const OpenRequest& request) {
  return chosen_kind<DatasetKind>(configuration).open(configuration, request);
}

decltype(DatasetKind::for_each_file) each_file_of(std::string extension) {
  return [extension = std::move(extension)](const DatasetConfiguration& data, const OpenRequest& /*request*/,
                                            const std::function<void(const std::filesystem::path&)>& take) {
    for (const auto& file : files_of(data, extension)) take(file);
  };
}

void refuse_same_files(const DatasetConfiguration& data, const CheckRequest& request) {
  const DataConfiguration& all = request.configuration.data;
  if (&data != &all.train || !all.validation || all.sampling.validation_fraction > 0.0) return;
  const DatasetConfiguration& validation = *all.validation;
  if (validation.kind != data.kind || validation.path != data.path || validation.files != data.files) return;
  request.complain(
      "validation.path",
      "is the training data's: write another, or data.validation.fraction = 0.1 for a part of it, or leave "
      "[data.validation] out");
}

std::optional<std::int64_t> count_samples(const DatasetConfiguration& data) {
  const DatasetKind& kind = chosen_kind<DatasetKind>(data);
  if (!kind.count_samples) return std::nullopt;
  try {
    return kind.count_samples(data);
  } catch (const UserError&) {
    return std::nullopt;
  }
}

}  // namespace onebatch
