#include "comm/collective_queue.hpp"

#include "comm/local_communicator.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace onebatch::comm {
namespace {

class CollectiveQueueTest : public ::testing::TestWithParam<CollectiveQueue::Thread> {};

TEST_P(CollectiveQueueTest, runs_in_the_order_of_posting) {
  CollectiveQueue queue(GetParam());
  std::vector<int> ran;
  for (int i = 0; i < 1000; ++i) queue.post([&ran, i] { ran.push_back(i); });
  queue.wait();
  ASSERT_EQ(ran.size(), 1000U);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(ran[static_cast<std::size_t>(i)], i);
}

TEST_P(CollectiveQueueTest, a_failure_drops_what_follows_and_is_thrown_once) {
  CollectiveQueue queue(GetParam());
  int ran = 0;
  queue.post([] { throw std::runtime_error("the wire is cut"); });
  queue.post([&ran] { ++ran; });
  EXPECT_THROW(queue.wait(), std::runtime_error);
  EXPECT_EQ(ran, 0);
  queue.post([&ran] { ++ran; });
  EXPECT_NO_THROW(queue.wait());
  EXPECT_EQ(ran, 1);
}

TEST_P(CollectiveQueueTest, its_communicator_comes_after_what_was_posted) {
  CollectiveQueue queue(GetParam());
  LocalCommunicator alone;
  QueuedCommunicator communicator(alone, queue);
  bool posted_has_run = false;
  queue.post([&] { posted_has_run = true; });
  double value = 3.0;
  communicator.all_reduce(&value, 1, ScalarType::float64, ReduceOp::sum);
  EXPECT_TRUE(posted_has_run);
  EXPECT_EQ(value, 3.0);
  EXPECT_NE(communicator.allocate(100), nullptr);
}

TEST_P(CollectiveQueueTest, ends_after_what_was_posted) {
  int ran = 0;
  {
    CollectiveQueue queue(GetParam());
    for (int i = 0; i < 100; ++i) queue.post([&ran] { ++ran; });
  }
  EXPECT_EQ(ran, 100);
}

INSTANTIATE_TEST_SUITE_P(Threads, CollectiveQueueTest,
                         ::testing::Values(CollectiveQueue::Thread::own, CollectiveQueue::Thread::callers));

}  // namespace
}  // namespace onebatch::comm
