// What the environment says of how this process was started, before MPI is touched.
#pragma once

#include "comm/world.hpp"

#include <functional>
#include <optional>

namespace onebatch::comm {

/// Value of an environment variable; none where it is not set.
using EnvironmentLookup = std::function<std::optional<std::string>(const char* name)>;

/// Open MPI's variables win over PMI's, those over Slurm's: mpirun inside a Slurm allocation sets both. Slurm's count
/// in a step alone: a job's script has been started by no launcher. Nonsense in a variable counts as absent. PMIx alone
/// does not say how many there are: the size is 0 then, and MPI knows.
LauncherView read_launcher(const EnvironmentLookup& lookup);
LauncherView read_launcher();

/// Whether this launcher hands its processes what MPI needs to find the others (mpirun, srun --mpi=pmix).
bool launcher_has_mpi(const EnvironmentLookup& lookup);

/// Whether this process is one of several that a launcher has started. The script of a Slurm job is none: Slurm sets
/// the variables of its first task there too, but no step's (sbatch(1), srun(1)).
bool is_one_of_several(const EnvironmentLookup& lookup);
bool is_one_of_several();

/// The message for processes that a launcher started without a matching MPI: each would believe that it is alone.
std::string mending_command(const LauncherView& view, int mpi_size);

}  // namespace onebatch::comm
