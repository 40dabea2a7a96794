// Whether the mpirun that is found here is the one that this program needs, and whether it starts ranks that can
// compute together.
#pragma once

#include "launch/doctor/finding.hpp"
#include "launch/doctor/machine_facts.hpp"

#include <string>
#include <vector>

namespace onebatch::launch {

/// What an mpirun says of itself.
struct FoundMpirun {
  std::string path;
  std::string says;  // the first line of `mpirun --version`
};

/// Those of PATH, in its order, and then those that lie where Open MPI is usually installed.
std::vector<FoundMpirun> find_mpiruns(double seconds);

/// `in_path` of `found` are those of PATH. `library`: the MPI that the program was linked with, "Open MPI v4.1.4".
Finding mpirun_finding(const std::vector<FoundMpirun>& found, std::size_t in_path, const std::string& library);

/// Starts `ranks` ranks of this command with that mpirun and returns what they say of each other; what goes wrong is a
/// finding.
std::vector<Finding> try_ranks(const MachineFacts& facts, const std::string& mpirun, int ranks, double seconds);

}  // namespace onebatch::launch
