// The states of every rank's random generators, for what a model draws that is not keyed by sample.
#pragma once

#include "comm/communicator.hpp"
#include "trainer/replica.hpp"

#include <filesystem>

namespace onebatch {

/// All ranks' states: "rank0.cpu", and "rank0.cuda" on GPUs. Collective.
std::vector<NamedTensor> gather_generators(const Replica& replica, comm::Communicator& control);

/// Sets each rank's own from such a file, where the world is as large as the one that saved it and has the same devices; else, and where
/// there is no file, it leaves them alone. Throws AgreedError. Collective; only rank 0 reads.
void load_generators(const std::filesystem::path& file, const Replica& replica, comm::Communicator& control);

}  // namespace onebatch
