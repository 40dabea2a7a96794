#include "nccl_double.hpp"

#include "comm/error.hpp"
#include "ranks_main.hpp"
#include "reference.hpp"

namespace onebatch::comm {
namespace {

using onebatch::testing::Fault;
using onebatch::testing::world;

std::unique_ptr<Communicator> create(double timeout_seconds = 30) {
  return create_nccl_communicator(world(), {.cuda_device = 0, .timeout_seconds = timeout_seconds});
}

TEST(NcclCommunicatorTest, reductions_equal_those_done_by_hand) {
  const auto nccl = create();
  EXPECT_EQ(nccl->backend(), "nccl");
  onebatch::testing::expect_reductions_match(*nccl, 2000);
  nccl->close();
}

TEST(NcclCommunicatorTest, gather_and_broadcast_move_bytes) {
  const auto nccl = create();
  const int mine = nccl->rank() * 3;
  std::vector<int> all(static_cast<std::size_t>(nccl->size()));
  nccl->all_gather(&mine, all.data(), sizeof(mine));
  for (std::size_t rank = 0; rank < all.size(); ++rank) EXPECT_EQ(all[rank], static_cast<int>(rank) * 3);
  int value = nccl->rank() == 0 ? 42 : 0;
  nccl->broadcast(&value, sizeof(value), 0);
  EXPECT_EQ(value, 42);
  nccl->close();
}

TEST(NcclCommunicatorTest, the_healthy_are_destroyed_and_the_sick_aborted) {
  const int aborted = onebatch::testing::aborted_communicators();
  const int destroyed = onebatch::testing::destroyed_communicators();
  const auto healthy = create();
  healthy->close();
  healthy->close();
  EXPECT_EQ(onebatch::testing::destroyed_communicators(), destroyed + 1);
  create().reset();
  EXPECT_EQ(onebatch::testing::aborted_communicators(), aborted + 1);
}

TEST(NcclCommunicatorTest, a_failing_call_names_rank_call_and_reason) {
  const auto nccl = create();
  onebatch::testing::plan_fault(Fault::fail, 2);
  float value = 1.0F;
  nccl->all_reduce(&value, 1, ScalarType::float32, ReduceOp::sum);
  std::string said;
  try {
    nccl->all_reduce(&value, 1, ScalarType::float32, ReduceOp::sum);
  } catch (const CommError& error) {
    said = error.what();
  }
  EXPECT_NE(said.find("rank " + std::to_string(world().rank())), std::string::npos) << said;
  EXPECT_NE(said.find("ncclAllReduce"), std::string::npos) << said;
  EXPECT_NE(said.find("remote process exited"), std::string::npos) << said;
}

TEST(NcclCommunicatorTest, buckets_that_are_started_are_summed_when_finished) {
  const auto nccl = create();
  std::vector<float> buckets(3000, static_cast<float>(nccl->rank() + 1));
  for (int step = 0; step < 3; ++step) {
    std::fill(buckets.begin(), buckets.end(), static_cast<float>(nccl->rank() + 1));
    for (std::size_t begin = 0; begin < buckets.size(); begin += 1000)
      nccl->start_all_reduce(buckets.data() + begin, 1000, ScalarType::float32, ReduceOp::sum,
                             nccl->mark_ready(nullptr));
    nccl->finish_on(nullptr);
    const auto sum = static_cast<float>(nccl->size() * (nccl->size() + 1) / 2);
    for (const float value : buckets) ASSERT_EQ(value, sum);
  }
  nccl->close();
}

TEST(NcclCommunicatorTest, gpus_that_do_not_reach_each_other_are_found_at_the_start) {
  onebatch::testing::plan_fault(Fault::disagree, 1);
  std::string said;
  try {
    create();
  } catch (const CommError& error) {
    said = error.what();
  }
  EXPECT_NE(said.find("do not reach each other"), std::string::npos) << said;
}

TEST(NcclCommunicatorTest, first_sums_that_do_not_come_about_say_what_to_try) {
  for (const int nth : {1, 2}) {  // the small one and the large one
    onebatch::testing::plan_fault(Fault::hang, nth);
    std::string said;
    try {
      create(0.5);
    } catch (const CommError& error) {
      said = error.what();
    }
    EXPECT_NE(said.find(nth == 1 ? "the first sum of 4 bytes" : "the first sum of 33554432 bytes"), std::string::npos)
        << said;
    for (const char* hint : {"NCCL_P2P_DISABLE=1", "NCCL_SOCKET_IFNAME", "/dev/shm"})
      EXPECT_NE(said.find(hint), std::string::npos) << said;
    world().control().barrier();
  }
  onebatch::testing::plan_fault(Fault::none, 0);
}

TEST(NcclCommunicatorTest, a_start_that_fails_says_so) {
  onebatch::testing::plan_fault(Fault::fail, 1);
  EXPECT_THROW(create(), CommError);
}

TEST(NcclCommunicatorTest, determinism_fixes_the_algorithm_and_keeps_what_the_user_set) {
  setenv("NCCL_PROTO", "LL", 1);
  const auto nccl = create_nccl_communicator(world(), {.deterministic = true});
  EXPECT_STREQ(getenv("NCCL_ALGO"), "Ring");
  EXPECT_STREQ(getenv("NCCL_PROTO"), "LL");
  EXPECT_STREQ(getenv("NCCL_NVLS_ENABLE"), "0");
  nccl->close();
  for (const char* name : {"NCCL_ALGO", "NCCL_PROTO", "NCCL_NVLS_ENABLE"}) unsetenv(name);
}

TEST(NcclCommunicatorTest, a_hanging_call_ends_at_its_deadline) {
  const auto nccl = create(0.3);
  onebatch::testing::plan_fault(Fault::hang, 1);
  float value = 1.0F;
  EXPECT_THROW(nccl->all_reduce(&value, 1, ScalarType::float32, ReduceOp::sum), CommError);
  onebatch::testing::plan_fault(Fault::none, 0);
}

}  // namespace
}  // namespace onebatch::comm
