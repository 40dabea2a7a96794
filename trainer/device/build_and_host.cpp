#include "trainer/device/build_and_host.hpp"

#include "comm/world.hpp"
#include "trainer/device/compute_device.hpp"
#include "trainer/device/memory_budget.hpp"
#include "trainer/device/topology.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/version.h>

#include <thread>
namespace onebatch {

std::vector<std::string> describe_build_and_host() {
  std::string math = at::get_mkl_version();
  const Topology topology = Topology::here();
  const std::vector<int> processors = topology.allowed_processors();
  std::vector<std::string> lines = {
      std::string("libtorch: ") + TORCH_VERSION,
      "blas: " + (at::hasMKL() ? math.substr(0, math.find(" for ")) : std::string("not MKL: expect slow matrix products")),
      "vector instructions: " + at::get_cpu_capability(),
      "cores: " + std::to_string(processors.size()) + " of " + std::to_string(std::thread::hardware_concurrency()),
      "threads: " + std::to_string(at::get_num_threads()),
      "host memory available: " + std::to_string(available_host_memory_bytes() >> 20) + " MiB",
      "mpi: " + comm::mpi_version(),
      "nccl: " + comm::nccl_version(),
      "cuda devices: " + std::to_string(cuda_device_count()) + (comm::built_with_nccl() ? "" : " (built without CUDA)"),
  };
  lines.push_back("topology: " + std::to_string(topology.num_packages()) + " package(s), " + std::to_string(topology.num_numa_nodes()) +
                  " memory node(s), " + std::to_string(topology.num_cores()) + " core(s); this process may use processors " +
                  processor_list(processors));
  const auto gpus = describe_cuda_devices(topology);
  for (std::size_t i = 0; i < gpus.size(); ++i) lines.push_back("gpu " + std::to_string(i) + ": " + gpus[i]);
  return lines;
}

}  // namespace onebatch
