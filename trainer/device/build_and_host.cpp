#include "trainer/device/build_and_host.hpp"

#include "comm/world.hpp"
#include "trainer/device/compute_device.hpp"
#include "trainer/device/memory_budget.hpp"
#include "trainer/device/topology.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <thread>
namespace onebatch {

std::vector<std::string> describe_build_and_host() {
  std::string math = at::get_mkl_version();
  const Topology topology = Topology::here();
  const std::vector<int> processors = topology.allowed_processors();
  std::vector<std::string> lines = {
      std::string("libtorch: ") + TORCH_VERSION,
      "blas: " +
          (at::hasMKL() ? math.substr(0, math.find(" for ")) : std::string("not MKL: expect slow matrix products")),
      "vector instructions: " + at::get_cpu_capability(),
      fmt::format("cores: {} of {}", processors.size(), std::thread::hardware_concurrency()),
      fmt::format("threads: {}", at::get_num_threads()),
      fmt::format("host memory available: {} MiB", available_host_memory_bytes() >> 20),
      "mpi: " + comm::mpi_version(),
      "nccl: " + comm::nccl_version(),
      fmt::format("cuda devices: {}{}", cuda_device_count(), comm::built_with_nccl() ? "" : " (built without CUDA)"),
  };
  lines.push_back(fmt::format(
      "topology: {} package(s), {} memory node(s), {} core(s); this process may use processors {}",
      topology.num_packages(), topology.num_numa_nodes(), topology.num_cores(), processor_list(processors)));
  const auto gpus = describe_cuda_devices(topology);
  for (std::size_t i = 0; i < gpus.size(); ++i) lines.push_back(fmt::format("gpu {}: {}", i, gpus[i]));
  return lines;
}

}  // namespace onebatch
