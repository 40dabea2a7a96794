#include "comm/error.hpp"
#include "comm/world.hpp"

#include <gmock/gmock.h>

namespace onebatch::comm {
namespace {

using ::testing::HasSubstr;

TEST(DeviceBindingTest, each_rank_has_its_own_gpu) {
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(choose_cuda_device(rank, 3, 4, false), rank);
}

TEST(DeviceBindingTest, more_ranks_than_gpus_are_refused_with_the_mending_command) {
  try {
    static_cast<void>(choose_cuda_device(0, 3, 2, false));
    FAIL();
  } catch (const LaunchError& error) {
    EXPECT_THAT(error.what(), HasSubstr("mpirun -np 2"));
    EXPECT_THAT(error.what(), HasSubstr("comm.allow_shared_device = true"));
  }
}

TEST(DeviceBindingTest, sharing_goes_round) {
  EXPECT_EQ(choose_cuda_device(2, 3, 2, true), 0);
  EXPECT_EQ(choose_cuda_device(1, 3, 2, true), 1);
}

TEST(DeviceBindingTest, no_gpu_is_refused) {
  EXPECT_THROW(static_cast<void>(choose_cuda_device(0, 1, 0, true)), LaunchError);
}

}  // namespace
}  // namespace onebatch::comm
