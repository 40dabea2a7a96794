#include "comm/launcher.hpp"

#include <gmock/gmock.h>

#include <map>

namespace onebatch::comm {
namespace {

using ::testing::HasSubstr;

EnvironmentLookup with(std::map<std::string, std::string> variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
}

TEST(LauncherTest, nothing_is_a_world_of_one) {
  const LauncherView view = read_launcher(with({}));
  EXPECT_EQ(view.launcher, "none");
  EXPECT_EQ(view.size, 1);
}

TEST(LauncherTest, mpirun_gives_ranks) {
  const LauncherView view = read_launcher(with({{"OMPI_COMM_WORLD_RANK", "2"},
                                                {"OMPI_COMM_WORLD_SIZE", "3"},
                                                {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                                {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}));
  EXPECT_EQ(view.launcher, "mpirun");
  EXPECT_EQ(view.rank, 2);
  EXPECT_EQ(view.size, 3);
  EXPECT_EQ(view.node_local_rank, 1);
  EXPECT_EQ(view.node_local_size, 2);
}

TEST(LauncherTest, mpirun_inside_slurm_wins) {
  const auto both = with(
      {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}});
  EXPECT_EQ(read_launcher(both).size, 2);
  EXPECT_TRUE(launcher_has_mpi(both));
}

TEST(LauncherTest, slurm_without_its_mpi_is_seen) {
  const auto slurm =
      with({{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "1"}, {"SLURM_STEP_ID", "0"}});
  const LauncherView view = read_launcher(slurm);
  EXPECT_EQ(view.launcher, "slurm");
  EXPECT_EQ(view.size, 4);
  EXPECT_FALSE(launcher_has_mpi(slurm));
  EXPECT_THAT(mending_command(view, 1), HasSubstr("srun --mpi=pmix -n 4"));
  EXPECT_THAT(mending_command(view, 1), HasSubstr("env -u SLURM_PROCID"));
}

TEST(LauncherTest, a_steps_own_size_goes_before_the_jobs) {
  const auto step =
      with({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}});
  EXPECT_EQ(read_launcher(step).size, 2);
}

// What Slurm sets in a job's script, after sbatch(1), and what srun adds to that in a step of its own.
std::map<std::string, std::string> slurm(std::map<std::string, std::string> more) {
  more.insert({{"SLURM_JOB_ID", "17"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}});
  return more;
}

TEST(LauncherTest, a_slurm_jobs_script_is_no_rank) {
  EXPECT_FALSE(is_one_of_several(with(slurm({}))));
  EXPECT_EQ(read_launcher(with(slurm({}))).launcher, "none");
  for (const char* step : {"4294967290", "4294967291", "4294967294"}) {
    EXPECT_FALSE(is_one_of_several(with(slurm({{"SLURM_STEP_ID", step}})))) << step;
    EXPECT_EQ(read_launcher(with(slurm({{"SLURM_STEP_ID", step}}))).size, 1) << step;
  }
}

TEST(LauncherTest, a_task_of_srun_is_a_rank) {
  EXPECT_TRUE(is_one_of_several(with(slurm({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}}))));
  EXPECT_TRUE(is_one_of_several(with(slurm({{"SLURM_STEP_ID", "3"}}))));
  EXPECT_FALSE(is_one_of_several(with(slurm({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}))));
}

TEST(LauncherTest, mpis_own_variables_say_a_rank) {
  EXPECT_FALSE(is_one_of_several(with({})));
  EXPECT_TRUE(is_one_of_several(with(slurm({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}}))));
  EXPECT_FALSE(is_one_of_several(with({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}})));
  EXPECT_TRUE(is_one_of_several(with(slurm({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}}))));
  EXPECT_TRUE(is_one_of_several(with({{"PMIX_RANK", "0"}})));
}

TEST(LauncherTest, pmix_counts_as_mpi) {
  EXPECT_TRUE(launcher_has_mpi(with({{"PMIX_RANK", "0"}})));
}

TEST(LauncherTest, pmix_alone_leaves_the_size_to_mpi) {
  const LauncherView view = read_launcher(with({{"PMIX_RANK", "3"}}));
  EXPECT_EQ(view.launcher, "pmix");
  EXPECT_EQ(view.rank, 3);
  EXPECT_EQ(view.size, 0);
}

TEST(LauncherTest, nonsense_counts_as_absent) {
  for (const char* size : {"", "x", "-3", "0", "3x", "99999999999999"}) {
    EXPECT_EQ(read_launcher(with({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", size}})).size, 1) << size;
  }
}

}  // namespace
}  // namespace onebatch::comm
