// A program with a training loop of its own, which asks for a batch size while it holds 10 GiB of a GPU:
// null_gpu_borrowed_device DEVICE CURRENT. Prints the limit that the search went by, what the current device and the
// memory fraction are afterwards, and where it searched.
#include "trainer/probe/find_batch_size.hpp"

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <torch/nn/modules/linear.h>

#include <cstdlib>
#include <iostream>

namespace {

constexpr std::int64_t k_held = std::int64_t{10} << 30;

}  // namespace

int main(int /*count*/, char** arguments) {
  const auto device = static_cast<c10::DeviceIndex>(std::atoi(arguments[1]));
  c10::cuda::CUDACachingAllocator::init(c10::cuda::device_count());
  c10::cuda::CUDACachingAllocator::setMemoryFraction(0.75, device);  // of older LibTorch that makes it the current one
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(std::atoi(arguments[2])));
  const at::Tensor held = at::empty({k_held}, at::TensorOptions().dtype(at::kByte).device(at::kCUDA, device));
  torch::nn::Linear model(256, 256);
  c10::Device searched(c10::kCPU);
  const auto forward = [&](const at::Tensor& inputs) {
    searched = inputs.device();
    return model->forward(inputs);
  };
  onebatch::DeviceRequest request;
  request.choice = onebatch::DeviceChoice::cuda;
  request.rank = device;
  request.gpus_of_ranks.assign(static_cast<std::size_t>(device) + 1, onebatch::visible_gpus());
  std::int64_t limit = 0;
  {
    const c10::DeviceIndex before = c10::cuda::current_device();
    limit = onebatch::bind_device(request)->memory_limit_bytes();
    c10::cuda::set_device(before);
  }
  onebatch::search_batch_size({.module = *model,
                               .forward = forward,
                               .input_shape = {256},
                               .output_shape = {256},
                               .dataset_size = 100,
                               .max_batch_size = std::nullopt},
                              c10::Device(c10::kCUDA, device));
  std::cout << "found: " << limit << " " << static_cast<int>(c10::cuda::current_device()) << " "
            << c10::cuda::CUDACachingAllocator::getMemoryFraction(device) << " " << static_cast<int>(searched.index())
            << std::endl;
}
