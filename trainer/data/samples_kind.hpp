// A kind of data from samples of a program's own: tensors in memory, a data set of LibTorch's, or a function.
#pragma once

#include "trainer/data/dataset_kind.hpp"

#include <ATen/ops/stack.h>

#include <concepts>

namespace onebatch {

/// torch::data::Dataset and what looks like one: get(i) has .data and .target.
template <typename D>
concept GivesExamples = requires(D& data, std::size_t i) {
  { data.get(i).data } -> std::convertible_to<at::Tensor>;
  { data.get(i).target } -> std::convertible_to<at::Tensor>;
  { data.size() } -> std::convertible_to<std::optional<std::size_t>>;
};

struct Samples {
  std::int64_t size = 0;
  /// The samples of these numbers, in that order: what a sample is depends on its number alone.
  std::function<Batch(std::span<const std::int64_t>)> gather;
  /// Of whole numbers as targets. None: the largest and one, for which all are looked through once.
  std::optional<std::int64_t> num_classes = {};

  Samples() = default;
  Samples(std::int64_t how_many, std::function<Batch(std::span<const std::int64_t>)> gather_them)
      : size(how_many), gather(std::move(gather_them)) {}
  /// All at once: their first dimension counts samples.
  Samples(Batch all);
  template <GivesExamples D>
  Samples(D data);
};

/// `open`: for training, and for validation where a configuration has it. See Dataset::gather for what samples are.
DatasetKind samples_kind(std::string name, std::function<Samples(const OpenRequest&)> open);

template <GivesExamples D>
Samples::Samples(D data) {
  auto shared = std::make_shared<D>(std::move(data));
  size = static_cast<std::int64_t>(std::optional<std::size_t>(shared->size()).value_or(0));
  gather = [shared](std::span<const std::int64_t> indices) {
    std::vector<at::Tensor> inputs;
    std::vector<at::Tensor> targets;
    for (const std::int64_t index : indices) {
      auto example = shared->get(static_cast<std::size_t>(index));
      inputs.push_back(std::move(example.data));
      targets.push_back(std::move(example.target));
    }
    return Batch{{at::stack(inputs)}, at::stack(targets), {}};
  };
}

}  // namespace onebatch
