#include "trainer/data/samples_kind.hpp"

#include "trainer/base/error.hpp"
#include "trainer/base/shape_text.hpp"
#include "trainer/data/input_type.hpp"
#include "trainer/data/label_search.hpp"

#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <numeric>

namespace onebatch {
namespace {

class GivenSamples final : public Dataset {
 public:
  GivenSamples(Samples samples, std::string named, std::optional<std::int64_t> ignored)
      : samples_(std::move(samples)), named_(std::move(named)) {
    if (samples_.size < 1 || !samples_.gather) throw UserError(named_ + " has no samples");
    const std::int64_t first = 0;
    const Batch one = gather({&first, 1}, at::kFloat);
    sample_shape_ = one.inputs.front().sizes().slice(1).vec();
    if (!one.targets.defined() || one.targets.scalar_type() != at::kLong) return;
    num_classes_ = samples_.num_classes ? *samples_.num_classes : count_classes(ignored);
  }

  std::int64_t size() const override { return samples_.size; }
  std::vector<std::int64_t> sample_shape() const override { return sample_shape_; }
  std::int64_t num_classes() const override { return num_classes_; }
  std::optional<LabelRange> labels() const override { return labels_; }
  std::string name_of(std::size_t /*tensor*/) const override { return named_; }

  Batch gather(std::span<const std::int64_t> indices, at::ScalarType type) const override {
    Batch batch = given(indices);
    if (batch.inputs.empty()) throw UserError(named_ + " gives samples without any input");
    for (at::Tensor& input : batch.inputs) {
      check(input, indices.size());
      input = input.detach().to(input_type(input.scalar_type(), type)).contiguous();
    }
    for (at::Tensor* const tensor : {&batch.targets, &batch.weights}) {
      if (!tensor->defined()) continue;
      check(*tensor, indices.size());
      *tensor = tensor->detach().to(target_type(tensor->scalar_type(), type)).contiguous();
    }
    if (batch.weights.defined() && (!batch.targets.defined() || batch.weights.sizes() != batch.targets.sizes()))
      throw UserError(named_ + " gives weights that have not the targets' shape");
    return batch;
  }

 private:
  // A program's own function need not expect several threads.
  Batch given(std::span<const std::int64_t> indices) const {
    const std::scoped_lock lock(one_at_a_time_);
    return samples_.gather(indices);
  }

  void check(const at::Tensor& given, std::size_t count) const {
    if (!given.defined() || !given.device().is_cpu() || given.dim() == 0 ||
        given.size(0) != static_cast<std::int64_t>(count))
      throw UserError(fmt::format("{}: for {} samples it gives {}: give tensors [{}, ...] on the CPU", named_, count,
                                  given.defined() ? shape_text(given.sizes()) + " on " + given.device().str() : "none",
                                  count));
  }

  std::int64_t count_classes(std::optional<std::int64_t> ignored) {
    constexpr std::int64_t k_at_once = 1024;
    LabelSearch search(ignored);
    for (std::int64_t first = 0; first < samples_.size; first += k_at_once) {
      std::vector<std::int64_t> some(static_cast<std::size_t>(std::min(k_at_once, samples_.size - first)));
      std::iota(some.begin(), some.end(), first);
      search.look_through(first, gather(some, at::kFloat).targets);
    }
    labels_ = search.found();
    return search.num_classes();
  }

  Samples samples_;
  mutable std::mutex one_at_a_time_;
  std::string named_;
  std::vector<std::int64_t> sample_shape_;
  std::optional<LabelRange> labels_;
  std::int64_t num_classes_ = 0;
};

at::Tensor rows_of(const at::Tensor& all, std::span<const std::int64_t> indices) {
  if (!all.defined()) return all;
  const std::vector<std::int64_t> rows(indices.begin(), indices.end());
  return at::index_select(all, 0, at::tensor(rows, at::kLong));
}

}  // namespace

Samples::Samples(Batch all) {
  if (!all.inputs.empty() && all.inputs.front().defined() && all.inputs.front().dim() > 0)
    size = all.inputs.front().size(0);
  for (const at::Tensor& tensor : all.tensors()) {
    if (tensor.defined() && tensor.dim() > 0 && tensor.size(0) == size) continue;
    throw UserError(
        fmt::format("a data set's tensor is {} where its first input has {} samples: the first dimension "
                    "of every one counts them",
                    tensor.defined() ? shape_text(tensor.sizes()) : "undefined", size));
  }
  gather = [all = std::move(all)](std::span<const std::int64_t> indices) {
    Batch batch{{}, rows_of(all.targets, indices), rows_of(all.weights, indices)};
    for (const at::Tensor& input : all.inputs) batch.inputs.push_back(rows_of(input, indices));
    return batch;
  };
}

DatasetKind samples_kind(std::string name, std::function<Samples(const OpenRequest&)> open) {
  DatasetKind kind;
  kind.open = [open = std::move(open), named = "data.kind = \"" + name + "\""](const DatasetConfiguration&,
                                                                               const OpenRequest& request) {
    return std::make_unique<GivenSamples>(open(request), named, request.ignored);
  };
  kind.name = std::move(name);
  return kind;
}

}  // namespace onebatch
