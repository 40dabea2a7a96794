// What every rank has its own of, in one file: its names say whose a tensor is.
#pragma once

#include "comm/communicator.hpp"
#include "trainer/io/tensor_file.hpp"

namespace onebatch {

/// Copies on the host of all ranks' tensors: "rank0.name", "rank1.name". Collective.
std::vector<NamedTensor> gather_by_rank(const std::vector<NamedTensor>& own, comm::Communicator& control);

/// Fills each rank's tensors from such a file. False, and nothing is changed, where there is no file, another number of
/// ranks has saved it, or it lacks one of them; with Extra::refused also where it has more. Throws AgreedError.
/// Collective; only rank 0 reads.
bool load_by_rank(const std::filesystem::path& file, const std::vector<NamedTensor>& own, Extra extra,
                  comm::Communicator& control);

}  // namespace onebatch
