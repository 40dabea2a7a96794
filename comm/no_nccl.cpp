// Stands in for nccl_communicator.cpp in builds without NCCL, and says why.
#include "comm/error.hpp"
#include "comm/world.hpp"

namespace onebatch::comm {

std::unique_ptr<Communicator> create_nccl_communicator(World& world, const NcclOptions& /*options*/) {
  throw CommError(world.rank(), "create_nccl_communicator",
                  "this program was built without CUDA and NCCL: build it with ./dev build --cuda, or write "
                  "comm.backend = \"mpi\"");
}

bool built_with_nccl() {
  return false;
}

std::string nccl_version() {
  return "none (built without CUDA)";
}

}  // namespace onebatch::comm
