// The largest batch that a module can be trained with on a device, for a program that has its own training loop:
// #include <onebatch/find_batch_size.hpp>.
#pragma once

#include "trainer/device/compute_device.hpp"
#include "trainer/probe/search.hpp"

#include <torch/nn/module.h>

namespace onebatch {

struct BatchSizeRequest {
  torch::nn::Module& module;
  std::function<at::Tensor(const at::Tensor&)> forward;
  std::vector<std::int64_t> input_shape;   // of one sample
  std::vector<std::int64_t> output_shape;  // of one sample
  std::int64_t dataset_size = 0;
  std::optional<std::int64_t> max_batch_size;
  int num_iterations = 5;  // optimizer steps of a trial
  ProbeMode mode = ProbeMode::model;
  std::int64_t init_size = 2;  // where doubling begins
};

/// Every trial trains for real: random samples on [0, 1), mean squared error, Adam, training mode; outputs and loss
/// live until the backward is done, as in a loop. Afterwards the module is what it was, bit for bit (parameters,
/// buffers, gradients, mode, device), LibTorch's generators are too, and everything allocated is freed. Throws
/// DoesNotFitError where not even one sample fits, and what the module throws.
SearchResult search_batch_size(const BatchSizeRequest& request, ComputeDevice& device);

/// The same on a device of this process: a GPU by its index, or the CPU with what memory the host has free.
SearchResult search_batch_size(const BatchSizeRequest& request, c10::Device device);

/// The largest batch size that `model` (a module or holder of one, called as model->forward(inputs)) can be trained
/// with, not more than `dataset_size` and `max_batch_size`. No head-room is held back: leave some, 5 % say.
template <typename Model>
std::int64_t find_batch_size(Model& model, c10::Device device, std::vector<std::int64_t> input_shape,
                             std::vector<std::int64_t> output_shape, std::int64_t dataset_size,
                             std::optional<std::int64_t> max_batch_size = std::nullopt, int num_iterations = 5) {
  return search_batch_size({.module = *model,
                            .forward = [&model](const at::Tensor& inputs) { return model->forward(inputs); },
                            .input_shape = std::move(input_shape),
                            .output_shape = std::move(output_shape),
                            .dataset_size = dataset_size,
                            .max_batch_size = max_batch_size,
                            .num_iterations = num_iterations},
                           device)
      .largest_micro_batch;
}

}  // namespace onebatch
