// Which GPU a rank takes.
#include "comm/error.hpp"
#include "comm/world.hpp"

namespace onebatch::comm {

int choose_cuda_device(int node_local_rank, int node_local_size, int visible_devices, bool allow_shared) {
  if (visible_devices < 1)
    throw LaunchError("no CUDA GPU is visible on " + host_name() +
                      ": see nvidia-smi and CUDA_VISIBLE_DEVICES, or write run.device = \"cpu\"");
  if (node_local_size > visible_devices && !allow_shared) {
    throw LaunchError(std::to_string(node_local_size) + " ranks on " + host_name() + ", which has " + std::to_string(visible_devices) +
                      " visible GPU(s): two ranks would share one. Start at most " + std::to_string(visible_devices) +
                      " ranks per node (mpirun -np " + std::to_string(visible_devices) +
                      "), make more GPUs visible (CUDA_VISIBLE_DEVICES), or write comm.allow_shared_device = true");
  }
  return node_local_rank % visible_devices;
}

}  // namespace onebatch::comm
