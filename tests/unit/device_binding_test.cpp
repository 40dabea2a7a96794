#include "comm/error.hpp"
#include "comm/world.hpp"

#include <gmock/gmock.h>

namespace onebatch::comm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Seen = std::vector<std::vector<std::string>>;

std::vector<int> indices(const Seen& visible, SharedGpus shared = SharedGpus::refused) {
  std::vector<int> chosen;
  for (int rank = 0; rank < static_cast<int>(visible.size()); ++rank)
    chosen.push_back(choose_cuda_device(rank, visible, shared).index);
  return chosen;
}

TEST(DeviceBindingTest, each_rank_has_its_own_gpu) {
  const std::vector<std::string> node = {"a", "b", "c", "d"};
  EXPECT_THAT(indices({node, node, node}), ElementsAre(0, 1, 2));
}

TEST(DeviceBindingTest, ranks_that_see_one_gpu_each_take_it) {
  EXPECT_THAT(indices({{"a"}, {"b"}, {"c"}}), ElementsAre(0, 0, 0));
  EXPECT_EQ(choose_cuda_device(1, {{"a"}, {"b"}}, SharedGpus::refused).sharing, 1);
}

TEST(DeviceBindingTest, who_sees_more_leaves_others_theirs) {
  EXPECT_THAT(indices({{"a", "b"}, {"a"}, {"c", "b"}}), ElementsAre(1, 0, 0));
}

TEST(DeviceBindingTest, nodes_do_not_stand_in_each_others_way) {
  const std::vector<std::string> one = {"a", "b"}, other = {"c", "d"};
  EXPECT_THAT(indices({one, one, other, other}), ElementsAre(0, 1, 0, 1));
}

TEST(DeviceBindingTest, more_ranks_than_gpus_are_refused_with_the_mending_command) {
  const std::vector<std::string> node = {"a", "b"};
  for (const int rank : {0, 1, 2}) {
    try {
      static_cast<void>(choose_cuda_device(rank, {node, node, node, {"other node"}}, SharedGpus::refused));
      FAIL();
    } catch (const LaunchError& error) {
      EXPECT_THAT(error.what(), HasSubstr("3 ranks on"));
      EXPECT_THAT(error.what(), HasSubstr("mpirun -np 2"));
      EXPECT_THAT(error.what(), HasSubstr("comm.allow_shared_device = true"));
    }
  }
  EXPECT_EQ(choose_cuda_device(3, {node, node, node, {"other node"}}, SharedGpus::refused).index, 0);
}

TEST(DeviceBindingTest, sharing_goes_round) {
  const std::vector<std::string> node = {"a", "b"};
  EXPECT_THAT(indices({node, node, node}, SharedGpus::allowed), ElementsAre(0, 1, 0));
  EXPECT_EQ(choose_cuda_device(0, {node, node, node}, SharedGpus::allowed).sharing, 2);
  EXPECT_EQ(choose_cuda_device(1, {node, node, node}, SharedGpus::allowed).sharing, 1);
}

TEST(DeviceBindingTest, no_gpu_is_refused) {
  EXPECT_THROW(static_cast<void>(choose_cuda_device(0, {{}, {"a"}}, SharedGpus::allowed)), LaunchError);
}

}  // namespace
}  // namespace onebatch::comm
