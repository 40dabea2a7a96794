// Ranks are threads here, so that the thread sanitizer sees what processes would do.
#include "comm/node_reducer.hpp"

#include "comm/error.hpp"
#include "reference.hpp"

#include <thread>

namespace onebatch::comm {
namespace {

using onebatch::testing::exact_input;

class Node {
 public:
  Node(int size, std::size_t chunk_bytes, std::size_t shared_bytes = 0)
      : size_(size),
        memory_(NodeReducer::bytes_needed(size, chunk_bytes) + static_cast<std::size_t>(size) * shared_bytes) {
    std::byte* begin = memory_.data();
    for (int rank = 0; rank < size; ++rank) {
      reducers_.push_back(std::make_unique<NodeReducer>(begin, chunk_bytes, rank, size));
      shared_.push_back(begin + NodeReducer::bytes_needed(size, chunk_bytes) +
                        static_cast<std::size_t>(rank) * shared_bytes);
    }
    if (shared_bytes == 0) return;
    for (auto& reducer : reducers_) reducer->share_buffers(shared_, shared_bytes);
  }

  template <typename Work>
  void on_all_ranks(const Work& work) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size_; ++rank)
      threads.emplace_back([&, rank] { work(rank, *reducers_[static_cast<std::size_t>(rank)]); });
    for (std::thread& thread : threads) thread.join();
  }

  std::byte* shared(int rank) const { return shared_[static_cast<std::size_t>(rank)]; }

 private:
  int size_;
  AlignedMemory memory_;
  std::vector<std::unique_ptr<NodeReducer>> reducers_;
  std::vector<std::byte*> shared_;
};

std::vector<float> normal_values(int rank, std::size_t count) {
  std::mt19937 generator(static_cast<unsigned>(rank) + 7);
  std::vector<float> values(count);
  for (float& value : values) value = std::normal_distribution<float>()(generator);
  return values;
}

// In the order of the ranks, as every rank must have it.
std::vector<float> sum_by_hand(int size, std::size_t count) {
  std::vector<float> sum = normal_values(0, count);
  for (int rank = 1; rank < size; ++rank) {
    const auto other = normal_values(rank, count);
    for (std::size_t i = 0; i < count; ++i) sum[i] += other[i];
  }
  return sum;
}

class NodeReducerTest : public ::testing::TestWithParam<int> {};

TEST_P(NodeReducerTest, every_type_operation_and_size_equals_the_reduction_by_hand) {
  const int size = GetParam();
  Node node(size, 4096);
  constexpr ScalarType k_types[] = {ScalarType::uint8,    ScalarType::int32,   ScalarType::int64,  ScalarType::float16,
                                    ScalarType::bfloat16, ScalarType::float32, ScalarType::float64};
  std::atomic<int> wrong{0};
  node.on_all_ranks([&](int rank, NodeReducer& reducer) {
    std::mt19937 generator(5);
    for (int i = 0; i < 300; ++i) {
      const auto seed = static_cast<unsigned>(generator());
      const ScalarType type = k_types[generator() % 7];
      const auto op = static_cast<ReduceOp>(generator() % 3);
      const std::size_t count = generator() % (i % 10 == 0 ? 20000 : 700);
      auto buffer = exact_input(seed, rank, count, type);
      reducer.all_reduce(buffer.data(), count, type, op);
      auto expected = exact_input(seed, 0, count, type);
      for (int other = 1; other < size; ++other) {
        const auto input = exact_input(seed, other, count, type);
        for (std::size_t k = 0; k < count; ++k)
          onebatch::testing::write_element(
              expected, k, type,
              onebatch::testing::combine(onebatch::testing::read_element(expected, k, type),
                                         onebatch::testing::read_element(input, k, type), op));
      }
      if (buffer != expected) ++wrong;
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST_P(NodeReducerTest, bits_do_not_depend_on_stages_or_buckets) {
  const int size = GetParam();
  constexpr std::size_t k_count = 50000;
  const auto expected = sum_by_hand(size, k_count);
  for (const std::size_t chunk : {std::size_t{256}, std::size_t{4096}, std::size_t{1} << 20}) {
    for (const std::size_t bucket : {std::size_t{1000}, std::size_t{7777}, k_count}) {
      Node node(size, chunk);
      std::vector<std::vector<float>> results(static_cast<std::size_t>(size));
      node.on_all_ranks([&](int rank, NodeReducer& reducer) {
        auto values = normal_values(rank, k_count);
        for (std::size_t begin = 0; begin < k_count; begin += bucket)
          reducer.all_reduce(values.data() + begin, std::min(bucket, k_count - begin), ScalarType::float32,
                             ReduceOp::sum);
        results[static_cast<std::size_t>(rank)] = values;
      });
      for (const auto& result : results) ASSERT_EQ(result, expected) << "chunk " << chunk << " bucket " << bucket;
    }
  }
}

TEST_P(NodeReducerTest, shared_buffers_are_summed_where_they_lie) {
  const int size = GetParam();
  constexpr std::size_t k_count = 50000;
  const auto expected = sum_by_hand(size, k_count);
  Node node(size, 4096, k_count * sizeof(float));
  node.on_all_ranks([&](int rank, NodeReducer& reducer) {
    for (int repeat = 0; repeat < 20; ++repeat) {
      auto* buffer = reinterpret_cast<float*>(node.shared(rank));
      const auto mine = normal_values(rank, k_count);
      std::copy(mine.begin(), mine.end(), buffer);
      for (std::size_t begin = 0; begin < k_count; begin += 12345)
        reducer.all_reduce(buffer + begin, std::min<std::size_t>(12345, k_count - begin), ScalarType::float32,
                           ReduceOp::sum);
      float small[3] = {1.0F, 2.0F, 3.0F};  // ordinary memory in between
      reducer.all_reduce(small, 3, ScalarType::float32, ReduceOp::sum);
      ASSERT_EQ(small[2], 3.0F * static_cast<float>(size));
    }
  });
  for (int rank = 0; rank < size; ++rank) {
    const auto* buffer = reinterpret_cast<const float*>(node.shared(rank));
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), buffer)) << "rank " << rank;
  }
}

TEST_P(NodeReducerTest, every_root_can_broadcast) {
  const int size = GetParam();
  Node node(size, 512);
  node.on_all_ranks([&](int rank, NodeReducer& reducer) {
    for (int root = 0; root < size; ++root) {
      std::vector<int> values(1000, rank == root ? root + 5 : -1);
      reducer.broadcast(values.data(), values.size() * sizeof(int), root);
      for (const int value : values) ASSERT_EQ(value, root + 5);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, NodeReducerTest, ::testing::Values(1, 2, 3, 4));

TEST(NodeReducerMismatchTest, ranks_that_do_not_do_the_same_are_told) {
  Node node(2, 4096);
  std::array<std::string, 2> said;
  node.on_all_ranks([&](int rank, NodeReducer& reducer) {
    std::vector<float> values(100);
    try {
      reducer.all_reduce(values.data(), rank == 0 ? 100 : 99, ScalarType::float32, ReduceOp::sum);
    } catch (const CommError& error) {
      said[static_cast<std::size_t>(rank)] = error.what();
    }
  });
  EXPECT_NE(said[0].find("rank 1 is in all_reduce of 396 bytes"), std::string::npos) << said[0];
  EXPECT_NE(said[1].find("rank 0 is in all_reduce of 400 bytes"), std::string::npos) << said[1];
}

TEST(NodeReducerMismatchTest, shared_buffers_at_unlike_places_are_told) {
  constexpr std::size_t k_count = 10000;
  Node node(2, 4096, 2 * k_count * sizeof(float));
  std::array<std::string, 2> said;
  node.on_all_ranks([&](int rank, NodeReducer& reducer) {
    try {
      reducer.all_reduce(node.shared(rank) + (rank == 0 ? 0 : 4096), k_count, ScalarType::float32, ReduceOp::sum);
    } catch (const CommError& error) {
      said[static_cast<std::size_t>(rank)] = error.what();
    }
  });
  EXPECT_NE(said[0].find("rank 1 is in all_reduce in place of 40000 bytes"), std::string::npos) << said[0];
  EXPECT_NE(said[0].find("at 4096"), std::string::npos) << said[0];
  EXPECT_NE(said[1].find("at 4096"), std::string::npos) << said[1];
}

}  // namespace
}  // namespace onebatch::comm
