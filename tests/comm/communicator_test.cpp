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
    for (std::size_t k = 0; k < count; ++k) ASSERT_NEAR(static_cast<double>(mine[k]), exact[k], control().size() * 6e-8 * magnitude[k]);
    std::vector<float> all(count * static_cast<std::size_t>(control().size()));
    control().all_gather(mine.data(), all.data(), count * sizeof(float));
    for (int rank = 0; rank < control().size(); ++rank) {
      ASSERT_EQ(std::memcmp(all.data() + static_cast<std::size_t>(rank) * count, mine.data(), count * sizeof(float)), 0) << "rank " << rank;
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
  for (std::size_t rank = 0; rank < all.size(); ++rank) EXPECT_EQ(all[rank], std::string(rank * 100, static_cast<char>('a' + rank)));
  const int last = control().size() - 1;
  EXPECT_EQ(broadcast_text(control(), control().rank() == last ? "from the last" : "ignored", last), "from the last");
  EXPECT_EQ(broadcast_text(control(), "", 0), "");
}

TEST(CommunicatorTest, ranks_know_their_node) {
  EXPECT_EQ(world().node_local_size(), world().size());
  EXPECT_EQ(world().node_local_rank(), world().rank());
}

}  // namespace
}  // namespace onebatch::comm
