#include "trainer/device/topology.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <stdexcept>

namespace onebatch {
namespace {

// hwloc's own words for two packages of two cores, with a GPU on the second one's bus.
constexpr const char* k_two_packages = R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
 <object type="Machine" os_index="0" cpuset="0x0000000f" complete_cpuset="0x0000000f" allowed_cpuset="0x0000000f" nodeset="0x00000003" complete_nodeset="0x00000003" allowed_nodeset="0x00000003" gp_index="1">
  <object type="Package" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="2">
   <object type="NUMANode" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="3" local_memory="1073741824"/>
   <object type="Core" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="4">
    <object type="PU" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="5"/>
   </object>
   <object type="Core" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="6">
    <object type="PU" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="7"/>
   </object>
  </object>
  <object type="Package" os_index="1" cpuset="0x0000000c" complete_cpuset="0x0000000c" nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="8">
   <object type="NUMANode" os_index="1" cpuset="0x0000000c" complete_cpuset="0x0000000c" nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="9" local_memory="1073741824"/>
   <object type="Core" os_index="2" cpuset="0x00000004" complete_cpuset="0x00000004" nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="10">
    <object type="PU" os_index="2" cpuset="0x00000004" complete_cpuset="0x00000004" nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="11"/>
   </object>
   <object type="Core" os_index="3" cpuset="0x00000008" complete_cpuset="0x00000008" nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="12">
    <object type="PU" os_index="3" cpuset="0x00000008" complete_cpuset="0x00000008" nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="13"/>
   </object>
   <object type="Bridge" gp_index="14" bridge_type="0-1" depth="0" bridge_pci="0000:[80-ff]">
    <object type="PCIDev" gp_index="15" pci_busid="0000:81:00.0" pci_type="0302 [10de:1eb8] [10de:12a2] a1" pci_link_speed="0.000000"/>
   </object>
  </object>
 </object>
</topology>
)";

TEST(TopologyTest, cores_near_a_gpu_are_those_of_its_package) {
  const Topology topology = Topology::from_xml(k_two_packages);
  EXPECT_EQ(topology.num_packages(), 2);
  EXPECT_EQ(topology.num_numa_nodes(), 2);
  EXPECT_EQ(topology.num_cores(), 4);
  EXPECT_EQ(topology.allowed_processors(), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(topology.processors_near("0000:81:00.0"), (std::vector<int>{2, 3}));
  EXPECT_EQ(topology.processors_near("0000:01:00.0"), (std::vector<int>{0, 1, 2, 3})) << "no such device: all";
}

TEST(TopologyTest, what_is_no_topology_is_refused) {
  EXPECT_THROW(Topology::from_xml("<topology>"), std::invalid_argument);
}

TEST(TopologyTest, this_machine_has_what_the_system_says) {
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  const auto allowed = Topology::here().allowed_processors();
  ASSERT_EQ(static_cast<int>(allowed.size()), CPU_COUNT(&set));
  for (const int processor : allowed) EXPECT_TRUE(CPU_ISSET(static_cast<std::size_t>(processor), &set));
}

TEST(PartOfRankTest, ranks_with_the_same_neighbours_share_them_without_overlap) {
  const std::vector<int> left = {0, 1, 2, 3, 4};
  const std::vector<int> right = {8, 9};
  const std::vector<std::vector<int>> near = {left, right, left, right};
  EXPECT_EQ(part_of_rank(near, 0), (std::vector<int>{0, 1}));
  EXPECT_EQ(part_of_rank(near, 2), (std::vector<int>{2, 3, 4}));
  EXPECT_EQ(part_of_rank(near, 1), (std::vector<int>{8}));
  EXPECT_EQ(part_of_rank(near, 3), (std::vector<int>{9}));
}

TEST(PartOfRankTest, more_ranks_than_cores_get_one_each) {
  const std::vector<std::vector<int>> near(3, std::vector<int>{4, 5});
  EXPECT_EQ(part_of_rank(near, 0), (std::vector<int>{4}));
  EXPECT_EQ(part_of_rank(near, 1), (std::vector<int>{5}));
  EXPECT_EQ(part_of_rank(near, 2), (std::vector<int>{4}));
}

TEST(ProcessorListTest, runs_are_written_as_the_system_does) {
  EXPECT_EQ(processor_list({}), "");
  EXPECT_EQ(processor_list({3}), "3");
  EXPECT_EQ(processor_list({0, 1, 2, 8, 10, 11}), "0-2,8,10-11");
}

TEST(BindProcessTest, the_process_runs_where_it_was_bound) {
  const auto allowed = Topology::here().allowed_processors();
  ASSERT_TRUE(bind_process({allowed.back()}));
  EXPECT_EQ(Topology::here().allowed_processors(), std::vector<int>{allowed.back()});
  ASSERT_TRUE(bind_process(allowed));
}

}  // namespace
}  // namespace onebatch
