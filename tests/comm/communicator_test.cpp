#include "comm/cross_node_reducer.hpp"
#include "comm/error.hpp"
#include "ranks_main.hpp"
#include "reference.hpp"

namespace onebatch::comm {
namespace {

using onebatch::testing::world;

Communicator& control() {
  return world().control();
}

TEST(CommunicatorTest, reductions_equal_those_done_by_hand) {
  onebatch::testing::expect_reductions_match(control(), 2000);
}

TEST(CommunicatorTest, float_sums_are_within_a_rounding_per_rank_and_the_same_bits_everywhere) {
  std::mt19937 generator(23);
  for (int i = 0; i < 100; ++i) {
    const auto seed = static_cast<unsigned>(generator());
    const std::size_t count = 1 + generator() % 5000;
    std::vector<float> mine;
    std::vector<double> exact(count, 0.0);
    std::vector<double> magnitude(count, 0.0);
    for (int rank = 0; rank < control().size(); ++rank) {
      std::mt19937 draw(seed + static_cast<unsigned>(rank));
      for (std::size_t k = 0; k < count; ++k) {
        const float value = std::normal_distribution<float>()(draw);
        if (rank == control().rank()) mine.push_back(value);
        exact[k] += static_cast<double>(value);
        magnitude[k] += std::abs(static_cast<double>(value));
      }
    }
    control().all_reduce(mine.data(), count, ScalarType::float32, ReduceOp::sum);
    for (std::size_t k = 0; k < count; ++k)
      ASSERT_NEAR(static_cast<double>(mine[k]), exact[k], control().size() * 6e-8 * magnitude[k]);
    std::vector<float> all(count * static_cast<std::size_t>(control().size()));
    control().all_gather(mine.data(), all.data(), count * sizeof(float));
    for (int rank = 0; rank < control().size(); ++rank) {
      ASSERT_EQ(std::memcmp(all.data() + static_cast<std::size_t>(rank) * count, mine.data(), count * sizeof(float)), 0)
          << "rank " << rank;
    }
  }
}

TEST(CommunicatorTest, gathering_keeps_the_order_of_the_ranks) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{1000}}) {
    const std::vector<unsigned char> mine(bytes, static_cast<unsigned char>(control().rank() + 1));
    std::vector<unsigned char> all(bytes * static_cast<std::size_t>(control().size()));
    control().all_gather(mine.data(), all.data(), bytes);
    for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], i / bytes + 1);
  }
}

TEST(CommunicatorTest, every_root_can_broadcast) {
  for (int root = 0; root < control().size(); ++root) {
    std::vector<int> values(1000, control().rank() == root ? root + 5 : -1);
    control().broadcast(values.data(), values.size() * sizeof(int), root);
    for (const int value : values) ASSERT_EQ(value, root + 5);
  }
}

TEST(CommunicatorTest, texts_of_any_length_travel) {
  const std::string mine(static_cast<std::size_t>(control().rank()) * 100, static_cast<char>('a' + control().rank()));
  const auto all = all_gather_text(control(), mine);
  ASSERT_EQ(all.size(), static_cast<std::size_t>(control().size()));
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    EXPECT_EQ(all[rank], std::string(rank * 100, static_cast<char>('a' + rank)));
  const int last = control().size() - 1;
  EXPECT_EQ(broadcast_text(control(), control().rank() == last ? "from the last" : "ignored", last), "from the last");
  EXPECT_EQ(broadcast_text(control(), "", 0), "");
}

TEST(CommunicatorTest, reductions_equal_those_of_mpi) {
  Communicator* mpi = world().plain_mpi();
  if (mpi == nullptr) GTEST_SKIP() << "a world of one has no MPI";
  onebatch::testing::expect_reductions_match(*mpi, 300);
  std::mt19937 generator(3);
  for (int i = 0; i < 2000; ++i) {
    const std::size_t count = 1 + generator() % (i % 100 == 0 ? 300000 : 3000);
    std::vector<double> ours(count);
    std::mt19937 draw(static_cast<unsigned>(i * 4 + world().rank()));
    for (double& value : ours) value = std::normal_distribution<double>()(draw);
    std::vector<double> theirs = ours;
    control().all_reduce(ours.data(), count, ScalarType::float64, ReduceOp::sum);
    mpi->all_reduce(theirs.data(), count, ScalarType::float64, ReduceOp::sum);
    for (std::size_t k = 0; k < count; ++k)
      ASSERT_NEAR(ours[k], theirs[k], world().size() * 4e-16 * 8.0) << "case " << i;
  }
}

TEST(CommunicatorTest, memory_of_the_communicator_is_summed_like_any_other) {
  constexpr std::size_t k_count = 1000003;
  for (int repeat = 0; repeat < 2; ++repeat) {  // a later allocation ends the earlier
    auto* data = reinterpret_cast<float*>(control().allocate(k_count * sizeof(float)));
    EXPECT_EQ(data[0], 0.0F);
    std::vector<float> mine(k_count);
    std::mt19937 draw(static_cast<unsigned>(world().rank()));
    for (float& value : mine) value = std::normal_distribution<float>()(draw);
    std::copy(mine.begin(), mine.end(), data);
    for (std::size_t begin = 0; begin < k_count; begin += 400000)
      control().all_reduce(data + begin, std::min<std::size_t>(400000, k_count - begin), ScalarType::float32,
                           ReduceOp::sum);
    control().all_reduce(mine.data(), k_count, ScalarType::float32, ReduceOp::sum);
    ASSERT_EQ(std::memcmp(mine.data(), data, k_count * sizeof(float)), 0);
  }
}

TEST(CommunicatorTest, between_nodes_the_bits_do_not_depend_on_buckets_either) {
  if (world().size() == 1) GTEST_SKIP() << "a world of one has no MPI";
  CrossNodeReducer across(MPI_COMM_WORLD);
  constexpr std::size_t k_count = 30000;
  std::vector<float> expected(k_count);
  for (int rank = 0; rank < world().size(); ++rank) {
    std::mt19937 draw(static_cast<unsigned>(rank) + 40);
    for (std::size_t i = 0; i < k_count; ++i) {
      const float value = std::normal_distribution<float>()(draw);
      expected[i] = rank == 0 ? value : expected[i] + value;
    }
  }
  for (const std::size_t bucket : {std::size_t{100}, std::size_t{2100}, std::size_t{9999}, k_count}) {
    std::vector<float> values(k_count);
    std::mt19937 draw(static_cast<unsigned>(world().rank()) + 40);
    for (float& value : values) value = std::normal_distribution<float>()(draw);
    for (std::size_t begin = 0; begin < k_count; begin += bucket)
      across.all_reduce(values.data() + begin, std::min(bucket, k_count - begin), ScalarType::float32, ReduceOp::sum);
    ASSERT_EQ(values, expected) << "bucket " << bucket;
  }
}

TEST(CommunicatorTest, ranks_know_their_node) {
  EXPECT_EQ(world().node_local_size(), world().size());
  EXPECT_EQ(world().node_local_rank(), world().rank());
}

}  // namespace
}  // namespace onebatch::comm
