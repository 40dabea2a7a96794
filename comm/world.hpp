// The processes of this run: starts and ends MPI where a launcher started several, and is a world of one otherwise.
#pragma once

#include "comm/communicator.hpp"

#include <cstddef>
#include <memory>
#include <optional>

namespace onebatch::comm {

class SurvivorBoard;
class Watchdog;

/// What the launcher's environment variables say of this process, before MPI is touched.
struct LauncherView {
  std::string launcher;  // "none", "mpirun", "slurm", "pmix"
  int rank = 0;
  int size = 1;
  int node_local_rank = 0;
  int node_local_size = 1;
};

constexpr double k_default_timeout_seconds = 600.0;

/// Owns MPI's start and end. One per process; must outlive every communicator made from it.
class World {
 public:
  /// A world of one does not start MPI. The deadline counts from here on, MPI's own start included. Throws LaunchError
  /// where the launcher's size and MPI's differ.
  static std::unique_ptr<World> create(double timeout_seconds = k_default_timeout_seconds);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;
  [[nodiscard]] int node_local_rank() const;
  [[nodiscard]] int node_local_size() const;
  [[nodiscard]] const LauncherView& launcher() const;

  /// Hosts of the ranks, in their order.
  [[nodiscard]] std::vector<std::string> hosts() const;

  /// Host-memory collectives over all ranks: local in a world of one, else shared memory within a node and MPI between
  /// nodes. Owned by the world.
  [[nodiscard]] Communicator& control();
  /// MPI's own collectives on the same ranks, to compare with; none in a world of one.
  [[nodiscard]] Communicator* plain_mpi();
  /// Why the ranks of one node do not reduce through shared memory; empty where they do or need not.
  [[nodiscard]] std::string why_not_shared() const;

  /// Seconds after which a collective that has not ended is reported and the run ended with exit code 4.
  void set_timeout_seconds(double seconds);
  /// What this rank does now, told to those who wait for it in vain. Said again during long work, it keeps them
  /// waiting.
  void set_activity(std::string_view text);

  /// Where ranks of a node leave what must outlive them, `own_bytes` each and step, the same on every rank. Valid until
  /// close(). Null where there is no room for it in shared memory. Collective, once.
  SurvivorBoard* make_survivor_board(std::size_t own_bytes);

  /// Leaves MPI in order. Collective; idempotent. Without it the destructor does not communicate.
  void close();

  /// Over all that blocks or gets no further.
  [[nodiscard]] Watchdog& watchdog();

 private:
  World();
  struct State;
  std::unique_ptr<State> state_;
};

struct NcclOptions {
  int cuda_device = 0;
  double timeout_seconds = 600.0;
  bool deterministic = false;  // one algorithm for all sizes: slower, and the same bits run after run
};

/// NCCL over all ranks (two or more), bootstrapped over the world's MPI. Throws CommError; in builds without NCCL it
/// says why.
std::unique_ptr<Communicator> create_nccl_communicator(World& world, const NcclOptions& options);
[[nodiscard]] bool built_with_nccl();
/// "2.28.9", or why there is none.
[[nodiscard]] std::string nccl_version();
[[nodiscard]] std::string mpi_version();

enum class SharedGpus { refused, allowed };

struct GpuChoice {
  int index = 0;    // as this rank numbers those that it sees
  int sharing = 1;  // ranks that take it
};

/// Which GPU a rank takes. `visible`: for every rank the identifiers of those that it sees, so that ranks which see one
/// each (a scheduler's doing) are told from ranks that would share. Rank by rank the first that is free, another where
/// that leaves one for everybody. Throws LaunchError (no GPU; more ranks than GPUs unless ranks may share one).
[[nodiscard]] GpuChoice choose_cuda_device(int own_rank, const std::vector<std::vector<std::string>>& visible,
                                           SharedGpus shared);

}  // namespace onebatch::comm
