#include "launch/doctor/host_findings.hpp"
#include "launch/doctor/mpi_findings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

namespace onebatch::launch {
namespace {

using testing::HasSubstr;

constexpr std::int64_t k_gibibyte = std::int64_t{1} << 30;

// With two GPUs, of which nothing is to be said.
MachineFacts sound() {
  MachineFacts facts;
  facts.host = "a";
  facts.program = "/opt/onebatch";
  facts.root = true;
  facts.versions = {{"onebatch", "1"}, {"mpi", "Open MPI v4.1.4"}, {"nccl", "2.28.9"}};
  facts.driver = "580.65.06";
  facts.driver_gpus = 2;
  facts.gpus = {.runtime = "13.0", .driver_serves = "13.0", .names = {"H100", "H100"}, .problem = {}};
  facts.shared_memory = {"/dev/shm", "", 64 * k_gibibyte, 60 * k_gibibyte};
  facts.output = {"runs", "", 900 * k_gibibyte, 500 * k_gibibyte};
  facts.scratch = {"/tmp", "", 90 * k_gibibyte, 50 * k_gibibyte};
  facts.open_files = {65536, 65536};
  facts.processors = facts.allowed = 16;
  facts.interfaces = {"eth0"};
  facts.loopback = true;
  return facts;
}

Finding found(const MachineFacts& facts, const std::string& check) {
  for (const Finding& one : host_findings(facts)) {
    if (one.check == check) return one;
  }
  throw std::out_of_range(check);
}

State state_of(const MachineFacts& facts, const std::string& check) {
  return found(facts, check).state;
}

TEST(DoctorTest, sound_machine_has_no_problem) {
  for (const Finding& one : host_findings(sound())) EXPECT_FALSE(is_problem(one)) << one.check << ": " << one.found;
}

TEST(DoctorTest, each_problem_says_why_and_what_mends_it) {
  MachineFacts facts = sound();
  facts.gpus.names.clear();
  facts.shared_memory.problem = facts.output.problem = facts.scratch.problem = "Read-only file system";
  facts.infiniband = {"mlx5_0"};
  facts.locked_bytes = {65536, 65536};
  facts.open_files = {100, 100};
  facts.allowed = 1;
  facts.environment = {{"OMP_NUM_THREADS", "999"}, {"NCCL_SOCKET_IFNAME", "ib0"}};
  int problems = 0;
  for (const Finding& one : host_findings(facts)) {
    if (!is_problem(one)) continue;
    ++problems;
    EXPECT_FALSE(one.why.empty()) << one.check;
    EXPECT_FALSE(one.mend.empty() && one.otherwise.empty()) << one.check;
    EXPECT_EQ(one.hosts, std::vector<std::string>{"a"});
  }
  EXPECT_EQ(problems, 9);
}

TEST(DoctorTest, machine_without_a_gpu_claims_nothing_of_gpus) {
  MachineFacts facts = sound();
  facts.driver.clear();
  facts.driver_gpus = 0;
  facts.gpus = {.runtime = "13.0"};
  for (const Finding& one : gpu_findings(facts)) EXPECT_EQ(one.state, State::skipped) << one.check;
}

TEST(DoctorTest, driver_that_is_too_old_is_broken) {
  MachineFacts facts = sound();
  facts.gpus.driver_serves = "12.4";
  EXPECT_EQ(state_of(facts, "driver"), State::broken);
  EXPECT_THAT(found(facts, "driver").found, HasSubstr("CUDA up to 12.4; this program needs CUDA 13.0"));
}

TEST(DoctorTest, newer_driver_is_well) {
  MachineFacts facts = sound();
  facts.gpus.driver_serves = "14.1";
  EXPECT_EQ(state_of(facts, "driver"), State::well);
}

TEST(DoctorTest, hidden_gpus_name_the_variable_that_hides_them) {
  MachineFacts facts = sound();
  facts.gpus.names.clear();
  facts.environment["CUDA_VISIBLE_DEVICES"] = "7";
  EXPECT_EQ(found(facts, "GPUs").mend, "unset CUDA_VISIBLE_DEVICES");
  facts.environment.clear();
  EXPECT_THAT(found(facts, "GPUs").otherwise, HasSubstr("--gpus all"));
}

TEST(DoctorTest, list_with_a_number_that_is_no_gpu_is_a_warning) {
  MachineFacts facts = sound();
  facts.environment["CUDA_VISIBLE_DEVICES"] = "0,1,9";
  EXPECT_EQ(state_of(facts, "GPUs"), State::warning);
  facts.environment["CUDA_VISIBLE_DEVICES"] = "0,1";
  EXPECT_EQ(state_of(facts, "GPUs"), State::well);
}

TEST(DoctorTest, build_without_cuda_beside_gpus_is_a_warning) {
  MachineFacts facts = sound();
  facts.gpus = {};
  EXPECT_EQ(state_of(facts, "GPUs"), State::warning);
  EXPECT_EQ(found(facts, "GPUs").mend, "./dev build --cuda");
}

TEST(DoctorTest, pairs_that_do_not_reach_each_other_are_counted) {
  MachineFacts facts = sound();
  facts.gpus.names = {"A", "A", "A", "A"};
  facts.gpus.pairs_without_peer_access = 4;
  EXPECT_EQ(state_of(facts, "peer access"), State::warning);
  EXPECT_THAT(found(facts, "peer access").found, HasSubstr("2 of 6 pairs"));
}

TEST(DoctorTest, boundaries_of_rooms_and_limits) {
  MachineFacts facts = sound();
  facts.shared_memory.free_bytes = 256 << 20;
  facts.output.free_bytes = 1 << 30;
  facts.open_files = {1024, 1024};
  for (const char* check : {"shared memory", "disk", "open files"})
    EXPECT_EQ(state_of(facts, check), State::well) << check;
  facts.shared_memory.free_bytes -= 1;
  facts.output.free_bytes -= 1;
  facts.open_files.now -= 1;
  for (const char* check : {"shared memory", "disk", "open files"})
    EXPECT_EQ(state_of(facts, check), State::warning) << check;
  facts.output.free_bytes = (64 << 20) - 1;
  facts.open_files.now = 255;
  for (const char* check : {"disk", "open files"}) EXPECT_EQ(state_of(facts, check), State::broken) << check;
}

TEST(DoctorTest, command_for_more_files_keeps_to_the_hard_limit) {
  MachineFacts facts = sound();
  facts.open_files = {200, 4096};
  EXPECT_EQ(found(facts, "open files").mend, "ulimit -n 4096");
  facts.open_files = {200, -1};
  EXPECT_EQ(found(facts, "open files").mend, "ulimit -n 65536");
  facts.open_files = {200, 300};
  EXPECT_EQ(found(facts, "open files").mend, "");
}

TEST(DoctorTest, who_is_not_root_gets_sudo) {
  MachineFacts facts = sound();
  facts.root = false;
  facts.shared_memory.free_bytes = 0;
  EXPECT_THAT(found(facts, "shared memory").mend, testing::StartsWith("sudo mount"));
}

TEST(DoctorTest, one_rank_on_one_processor_is_well) {
  MachineFacts facts = sound();
  facts.processors = facts.allowed = 1;
  EXPECT_EQ(state_of(facts, "processors"), State::well);
}

TEST(DoctorTest, interfaces_are_named_as_nccl_takes_them) {
  MachineFacts facts = sound();
  facts.interfaces = {"enp5s0"};
  for (const char* list : {"enp", "=enp5s0", "ib0,enp5s0", "^docker0", "10.0.0.0/8"}) {
    facts.environment["NCCL_SOCKET_IFNAME"] = list;
    EXPECT_EQ(state_of(facts, "network"), State::well) << list;
  }
  facts.environment["NCCL_SOCKET_IFNAME"] = "eth0";
  EXPECT_EQ(state_of(facts, "network"), State::broken);
}

TEST(DoctorTest, facts_survive_their_way_to_rank_0) {
  MachineFacts facts = sound();
  facts.output.problem = "a \"quoted\" word";
  EXPECT_EQ(to_text(parse_facts(to_text(facts))), to_text(facts));
  EXPECT_EQ(parse_facts(to_text(facts)).gpus.names, facts.gpus.names);
}

TEST(DoctorTest, report_survives_its_document) {
  const DoctorReport report{3, host_findings(sound())};
  EXPECT_EQ(to_json(parse_doctor_report(to_json(report))), to_json(report));
}

std::vector<MachineFacts> two_ranks() {
  MachineFacts other = sound();
  other.rank = 1;
  other.host = "b";
  return {sound(), other};
}

TEST(DoctorTest, alike_ranks_are_well) {
  EXPECT_EQ(same_versions(two_ranks()).state, State::well);
  EXPECT_EQ(same_environment(two_ranks()).state, State::well);
}

TEST(DoctorTest, rank_with_another_version_is_named_with_its_host) {
  auto ranks = two_ranks();
  ranks[1].versions["nccl"] = "2.10.3";
  const Finding finding = same_versions(ranks);
  EXPECT_EQ(finding.state, State::broken);
  EXPECT_EQ(finding.found, "nccl: rank 0 on a has 2.28.9, rank 1 on b has 2.10.3");
  EXPECT_EQ(finding.mend, "scp /opt/onebatch b:/opt/onebatch");
}

TEST(DoctorTest, gpus_of_ones_own_are_no_difference) {
  auto ranks = two_ranks();
  ranks[1].environment["CUDA_VISIBLE_DEVICES"] = "1";
  EXPECT_EQ(same_environment(ranks).state, State::well);
  ranks[1].environment["NCCL_IB_DISABLE"] = "1";
  EXPECT_EQ(same_environment(ranks).mend, "mpirun -x NCCL_IB_DISABLE …");
}

TEST(DoctorTest, clocks_are_judged_both_ways) {
  EXPECT_EQ(same_time(two_ranks(), {0.0, 0.9}).state, State::well);
  EXPECT_EQ(same_time(two_ranks(), {0.0, -1.1}).state, State::warning);
  EXPECT_EQ(same_time(two_ranks(), {0.0, 11.0}).state, State::broken);
  EXPECT_THAT(same_time(two_ranks(), {0.0, -3.0}).found, HasSubstr("rank 1 on b is 3.0 s behind"));
}

TEST(DoctorTest, mpirun_of_the_same_series_is_well) {
  EXPECT_EQ(mpirun_finding({{"/usr/bin/mpirun", "mpirun (Open MPI) 4.1.4"}}, 1, "Open MPI v4.1.2").state, State::well);
}

TEST(DoctorTest, mpirun_of_another_series_is_a_warning_and_the_right_one_is_found) {
  const std::vector<FoundMpirun> found = {{"/opt/5/bin/mpirun", "mpirun (Open MPI) 5.0.1"},
                                          {"/usr/bin/mpirun", "mpirun (Open MPI) 4.1.4"}};
  const Finding finding = mpirun_finding(found, 1, "Open MPI v4.1.4");
  EXPECT_EQ(finding.state, State::warning);
  EXPECT_EQ(finding.mend, "export PATH=/usr/bin:$PATH");
}

TEST(DoctorTest, mpirun_of_another_mpi_is_broken) {
  const Finding finding = mpirun_finding({{"/opt/mpich/bin/mpirun", "HYDRA build details:"}}, 1, "Open MPI v4.1.4");
  EXPECT_EQ(finding.state, State::broken);
  EXPECT_EQ(finding.mend, "apt-get install openmpi-bin");
}

TEST(DoctorTest, no_mpirun_at_all_is_a_warning) {
  EXPECT_EQ(mpirun_finding({}, 0, "Open MPI v4.1.4").state, State::warning);
}

TEST(DoctorTest, problem_of_a_machine_is_counted_once_whatever_is_free_when_each_rank_looks) {
  std::vector<Finding> known = {{.check = "disk", .state = State::warning, .found = "runs: 900 MiB", .hosts = {"a"}}};
  Finding other = known.front();
  other.found = "runs: 899 MiB";
  EXPECT_FALSE(add_of_another(other, known));
  ASSERT_EQ(known.size(), 1U);
  other.state = State::broken;
  EXPECT_TRUE(add_of_another(other, known)) << "it has become worse";
  other.hosts = {"b"};
  EXPECT_FALSE(add_of_another(other, known)) << "the same on another machine";
  ASSERT_EQ(known.size(), 2U);
  EXPECT_EQ(known[1].hosts, (std::vector<std::string>{"a", "b"}));
  other.hosts = {"c"};
  other.found = "runs: 1 MiB";
  EXPECT_TRUE(add_of_another(other, known));
  other.check = "GPUs";
  EXPECT_TRUE(add_of_another(other, known));
  other.found = "2 GPUs less";
  EXPECT_TRUE(add_of_another(other, known)) << "the ranks see other GPUs";
}

TEST(DoctorTest, file_in_the_place_of_the_output_is_not_told_to_change_its_mode) {
  MachineFacts facts = sound();
  facts.output = {"runs", k_no_folder};
  EXPECT_EQ(state_of(facts, "disk"), State::broken);
  EXPECT_EQ(found(facts, "disk").mend, "");
  EXPECT_THAT(found(facts, "disk").otherwise, HasSubstr("--dir FOLDER"));
  facts.output = sound().output;
  facts.output.problem = "No space left on device";
  EXPECT_THAT(found(facts, "disk").mend, HasSubstr("--inodes"));
}

TEST(DoctorTest, summary_counts) {
  EXPECT_EQ(summary_of({}), "all is well");
  EXPECT_EQ(summary_of({{.state = State::warning}, {.state = State::skipped}}), "nothing is broken; 1 warning");
  EXPECT_EQ(summary_of({{.state = State::broken}, {.state = State::warning}, {.state = State::broken}}),
            "2 things are broken; 1 warning");
}

}  // namespace
}  // namespace onebatch::launch
