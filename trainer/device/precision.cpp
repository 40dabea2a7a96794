#include "trainer/device/precision.hpp"

#include "comm/world.hpp"
#include "trainer/device/compute_device.hpp"
#include "trainer/session.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <sched.h>
#include <torch/version.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

namespace onebatch {

int allowed_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  return std::max(1, CPU_COUNT(&cores));
}

void set_up_arithmetic(const Configuration& configuration, int node_local_size) {
  at::globalContext().setAllowTF32CuBLAS(configuration.precision.allow_tf32);
  at::globalContext().setAllowTF32CuDNN(configuration.precision.allow_tf32);
  if (configuration.run.deterministic == Determinism::on) at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  if (std::getenv("OMP_NUM_THREADS") != nullptr) return;
  // A rank that mpirun has bound sees only its own cores; unbound ranks of a node share all of them.
  const int cores = allowed_cores();
  const bool shared = cores >= static_cast<int>(std::thread::hardware_concurrency());
  at::set_num_threads(std::max(1, shared ? cores / std::max(1, node_local_size) : cores));
}

std::vector<std::string> describe_build_and_host() {
  std::string math = at::get_mkl_version();
  std::vector<std::string> lines = {
      std::string("libtorch: ") + TORCH_VERSION,
      "blas: " + (at::hasMKL() ? math.substr(0, math.find(" for ")) : std::string("not MKL: expect slow matrix products")),
      "vector instructions: " + at::get_cpu_capability(),
      "cores: " + std::to_string(allowed_cores()) + " of " + std::to_string(std::thread::hardware_concurrency()),
      "threads: " + std::to_string(at::get_num_threads()),
      "host memory available: " + std::to_string(available_host_memory_bytes() >> 20) + " MiB",
      "mpi: " + comm::mpi_version(),
      "nccl: " + comm::nccl_version(),
      "cuda devices: " + std::to_string(cuda_device_count()) + (comm::built_with_nccl() ? "" : " (built without CUDA)"),
  };
  return lines;
}

}  // namespace onebatch
