#include "comm/launcher.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace onebatch::comm {
namespace {

std::optional<int> read_int(const EnvironmentLookup& lookup, const char* name) {
  const auto text = lookup(name);
  if (!text) return std::nullopt;
  int value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < 0) return std::nullopt;
  return value;
}

struct Names {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

constexpr Names k_open_mpi = {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                              "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Names k_pmi = {"pmi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
// A step's own number of tasks; a batch script's processes have none and are no step.
constexpr Names k_slurm_step = {"slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
                                "SLURM_STEP_TASKS_PER_NODE"};
constexpr Names k_slurm = {"slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"};

std::optional<LauncherView> read_view(const EnvironmentLookup& lookup, const Names& names) {
  const auto rank = read_int(lookup, names.rank);
  const auto size = read_int(lookup, names.size);
  if (!rank || !size || *size < 1) return std::nullopt;
  return LauncherView{names.launcher, *rank, *size, read_int(lookup, names.local_rank).value_or(0),
                      read_int(lookup, names.local_size).value_or(1)};
}

// Not of one of the numbers of steps that are no srun's: a job's script, now and in old versions, and the shell of
// salloc (slurm.h).
bool is_in_a_users_step(const EnvironmentLookup& lookup) {
  const auto step = lookup("SLURM_STEP_ID");
  return step && *step != "4294967291" && *step != "4294967294" && *step != "4294967290";
}

std::optional<std::string> in_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

}  // namespace

LauncherView read_launcher(const EnvironmentLookup& lookup) {
  for (const Names& names : {k_open_mpi, k_pmi, k_slurm_step, k_slurm}) {
    const bool of_slurm = std::string_view(names.launcher) == "slurm";
    if (of_slurm && !is_in_a_users_step(lookup)) continue;
    if (const auto view = read_view(lookup, names)) return *view;
  }
  if (const auto rank = read_int(lookup, "PMIX_RANK")) return LauncherView{"pmix", *rank, 0, 0, 1};
  return LauncherView{.launcher = "none"};
}

LauncherView read_launcher() {
  return read_launcher(in_environment);
}

bool launcher_has_mpi(const EnvironmentLookup& lookup) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_FD"}) {
    if (lookup(name)) return true;
  }
  return false;
}

bool is_one_of_several(const EnvironmentLookup& lookup) {
  for (const Names& names : {k_open_mpi, k_pmi}) {
    if (const auto view = read_view(lookup, names)) return view->size > 1;
  }
  if (is_in_a_users_step(lookup)) return read_launcher(lookup).size > 1;
  return lookup("PMIX_RANK").has_value() || lookup("PMI_RANK").has_value();
}

bool is_one_of_several() {
  return is_one_of_several(in_environment);
}

std::string mending_command(const LauncherView& view, int mpi_size) {
  return fmt::format(
      "{0} says that this is one of {1} processes, but MPI sees {2}: they would train {1} separate models. Start them "
      "with\n"
      "  srun --mpi=pmix -n {1} onebatch …\nor, inside the allocation,\n  mpirun -np {1} --bind-to none onebatch …\n"
      "or run alone on purpose with\n  env -u SLURM_PROCID -u PMI_RANK onebatch …",
      view.launcher, view.size, mpi_size);
}

}  // namespace onebatch::comm
