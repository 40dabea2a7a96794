// Which GPU a rank takes.
#include "comm/error.hpp"
#include "comm/world.hpp"

#include <fmt/format.h>

namespace onebatch::comm {

int choose_cuda_device(int node_local_rank, int node_local_size, int visible_devices, bool allow_shared) {
  if (visible_devices < 1)
    throw LaunchError("no CUDA GPU is visible on " + host_name() +
                      ": see nvidia-smi and CUDA_VISIBLE_DEVICES, or write run.device = \"cpu\"");
  if (node_local_size > visible_devices && !allow_shared)
    throw LaunchError(fmt::format(
        "{0} ranks on {1}, which has {2} visible GPU(s): two ranks would share one. Start at most {2} ranks per node (mpirun -np {2}), "
        "make more GPUs visible (CUDA_VISIBLE_DEVICES), or write comm.allow_shared_device = true",
        node_local_size, host_name(), visible_devices));
  return node_local_rank % visible_devices;
}

}  // namespace onebatch::comm
