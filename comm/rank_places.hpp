// The ranks tell each other where they are, so that their watchdogs find each other when MPI is stuck.
#pragma once

#include "comm/mpi_communicator.hpp"
#include "comm/watchdog.hpp"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace onebatch::comm {

struct Introduction {
  std::vector<RankPlace> places;         // of every rank
  std::unique_ptr<SideChannel> channel;  // none where there is one node
};

/// Collective. `node` is the same number on all ranks that share a status board, and on no others; `answer` is what
/// other nodes are told.
Introduction introduce(MpiCommunicator& mpi, int node, std::function<std::string()> answer);

}  // namespace onebatch::comm
