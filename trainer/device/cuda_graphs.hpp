// CUDA graphs. In builds with CUDA alone.
#pragma once

#include "trainer/device/device_graph.hpp"

#include <c10/core/Device.h>

namespace onebatch {

std::unique_ptr<DeviceGraphs> create_cuda_graphs(c10::Device device);

}  // namespace onebatch
