#include "trainer/device/precision.hpp"

#include "comm/error.hpp"
#include "comm/world.hpp"
#include "trainer/session.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/version.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <thread>

namespace onebatch {

void set_up_arithmetic(const Configuration& configuration) {
  at::globalContext().setAllowTF32CuBLAS(configuration.precision.allow_tf32);
  at::globalContext().setAllowTF32CuDNN(configuration.precision.allow_tf32);
  if (configuration.run.deterministic != Determinism::off) at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
}

void place_threads(const Configuration& configuration, const ComputeDevice& device, comm::Communicator& control) {
  const std::vector<int> near = Topology::here().processors_near(device.pci_bus_id());
  // Ranks that see the same processors share them; a launcher that has bound each rank has done so already.
  const std::string host = comm::host_name() + "\n";
  std::string mine = host;
  for (const int processor : near) mine += std::to_string(processor) + " ";
  std::vector<std::vector<int>> near_of_ranks;
  int local_rank = 0;
  const auto all = comm::all_gather_text(control, mine);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].starts_with(host)) continue;
    if (static_cast<int>(rank) == control.rank()) local_rank = static_cast<int>(near_of_ranks.size());
    std::istringstream words(all[rank].substr(host.size()));
    near_of_ranks.emplace_back(std::istream_iterator<int>(words), std::istream_iterator<int>());
  }
  const std::vector<int> part = part_of_rank(near_of_ranks, local_rank);
  if (!device.pci_bus_id().empty()) bind_process(part);
  if (std::getenv("OMP_NUM_THREADS") != nullptr) return;
  // How a kernel's threads share its work may change its last bits, and ranks that share a host have fewer.
  const bool bitwise = configuration.run.deterministic == Determinism::bitwise;
  at::set_num_threads(bitwise ? 1 : std::max(1, static_cast<int>(part.size())));
}

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
