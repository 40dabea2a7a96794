// Stands in for device_cuda.cpp in builds without CUDA, and says why.
#include "trainer/base/error.hpp"
#include "trainer/device/compute_device.hpp"
#include "trainer/device/device_noise.hpp"
#include "trainer/device/out_of_memory.hpp"

#include <stdexcept>

namespace onebatch {

int cuda_device_count() {
  return 0;
}

std::int64_t num_cuda_refusals() {
  return 0;
}

std::vector<std::string> visible_gpus() {
  return {};
}

bool has_cuda_driver_too_old() {
  return false;
}

std::vector<std::string> describe_cuda_devices(const Topology& /*topology*/) {
  return {};
}

std::unique_ptr<ComputeDevice> bind_cuda_device(const DeviceRequest&) {
  throw UserError(
      "run.device = \"cuda\", but this program was built without CUDA: build it with ./dev build --cuda, or write "
      "run.device = \"cpu\"");
}

std::unique_ptr<DeviceNoise> create_device_noise(c10::Device) {
  throw std::runtime_error("this program was built without CUDA");
}

}  // namespace onebatch
