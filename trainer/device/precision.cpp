#include "trainer/device/precision.hpp"

#include "comm/error.hpp"
#include "comm/world.hpp"
#include "trainer/device/matrix_products.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <thread>

namespace onebatch {
namespace {

// Older LibTorch refuses matrix products on a GPU where results are to be the same, unless the sizes of cuBLAS'
// workspaces are given. It looks once, at the process's first product.
template <typename Context>
void give_cublas_workspaces(const Context& context) {
  if constexpr (requires { context.alertCuBLASConfigNotDeterministic(); })
    setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
}

}  // namespace

void set_up_arithmetic(const Configuration& configuration) {
  at::globalContext().setAllowTF32CuBLAS(configuration.precision.allow_tf32);
  at::globalContext().setAllowTF32CuDNN(configuration.precision.allow_tf32);
  at::globalContext().setBenchmarkCuDNN(configuration.precision.cudnn_benchmark);
  use_quickest_matrix_products();
  const bool deterministic = configuration.run.deterministic != Determinism::off;
  if (deterministic) give_cublas_workspaces(at::globalContext());
  at::globalContext().setDeterministicAlgorithms(deterministic, /*warn_only=*/false);
  // LibTorch would fill each tensor that it makes, a kernel for every result; what reads one before it is written is a
  // defect, which the null GPU and the sanitizers look for.
  at::globalContext().setDeterministicFillUninitializedMemory(false);
}

void place_threads(const Configuration& configuration, const ComputeDevice& device, comm::Communicator& control) {
  const std::vector<int> near = Topology::here().processors_near(device.pci_bus_id());
  // Ranks that see the same processors share them; a launcher that has bound each rank has done so already.
  const std::string host = comm::host_name() + "\n";
  std::string mine = host;
  for (const int processor : near) mine += fmt::format("{} ", processor);
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

// at::set_num_threads() would count for all threads that begin later. LibTorch's kernels are OpenMP's, whose number is
// each thread's own, once at::get_num_threads() has given it the process's.
void use_one_thread_here() {
  at::get_num_threads();
  using SetNumThreads = void (*)(int);
  if (const auto set = reinterpret_cast<SetNumThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"))) set(1);
}

}  // namespace onebatch
