// The gradient's way over the ranks, with real backwards: whatever the buckets, with and without overlap.
#include "trainer/gradients/reducer.hpp"

#include "comm/half.hpp"
#include "comm/ranks_main.hpp"
#include "trainer/base/error.hpp"
#include "trainer/device/agreement.hpp"
#include "trainer/replica/replica_check.hpp"
#include "trainer/replica/replica_state.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cstring>

namespace onebatch {
namespace {

using onebatch::testing::world;

comm::Communicator& control() {
  return world().control();
}

std::unique_ptr<ComputeDevice> cpu_device() {
  DeviceRequest request;
  request.choice = DeviceChoice::cpu;
  return bind_device(request);
}

at::Tensor leaf(at::IntArrayRef sizes, bool requires_grad = true) {
  return at::ones(sizes).requires_grad_(requires_grad);
}

// Parameters of many sizes: one used twice, one in the middle that is used by some ranks only, one never, one frozen.
struct Parameters {
  std::vector<NamedTensor> all = {{"first", leaf({64, 33})}, {"twice", leaf({33})},        {"sometimes", leaf({500})},
                                  {"never", leaf({7})},      {"frozen", leaf({5}, false)}, {"last", leaf({1000})}};

  at::Tensor operator[](const char* name) const {
    for (const NamedTensor& one : all) {
      if (one.name == name) return one.tensor;
    }
    throw std::logic_error(name);
  }

  // A loss with another gradient for every rank and micro-batch.
  at::Tensor loss(int rank, int micro_batch) const {
    const Parameters& p = *this;
    const double scale = 0.1 + rank * 0.7 + micro_batch * 0.013;
    at::Tensor sum = (p["first"] * p["twice"] * scale).sum() + (p["twice"] * p["twice"] * 0.3).sum() +
                     (p["last"] * (scale / 3.0)).sum();
    if (rank % 2 == 1) sum = sum + (p["sometimes"] * scale).sum();
    return sum + p["frozen"].sum();
  }
};

int micro_batches_of(int rank) {
  return rank;  // rank 0 has nothing to do
}

// What each rank alone comes to, by every rank; summed in the order of the ranks.
at::Tensor expected_sum() {
  at::Tensor sum;
  for (int rank = 0; rank < control().size(); ++rank) {
    Parameters parameters;
    FlatGradients gradients(parameters.all);
    gradients.begin_step();
    for (int m = 0; m < micro_batches_of(rank); ++m) parameters.loss(rank, m).backward();
    sum = rank == 0 ? gradients.flat().clone() : sum + gradients.flat();
  }
  return sum;
}

struct Way {
  comm::CollectiveQueue::Thread thread;
  std::int64_t bucket_bytes;
};

class ReducerTest : public ::testing::TestWithParam<Way> {};

TEST_P(ReducerTest, every_rank_gets_the_sum_bit_for_bit) {
  comm::CollectiveQueue queue(GetParam().thread);
  const auto device = cpu_device();
  Parameters parameters;
  std::byte* storage = control().allocate(FlatGradients::bytes_needed(parameters.all, {}));
  FlatGradients gradients(parameters.all, storage);
  GradientReducer reducer(control(), queue, gradients, *device,
                          {.bucket_cap_bytes = GetParam().bucket_bytes, .overlap = true});
  const at::Tensor expected = expected_sum();
  const int rank = control().rank();
  for (int step = 0; step < 3; ++step) {
    gradients.begin_step();
    for (int m = 0; m < micro_batches_of(rank); ++m) {
      const at::Tensor loss = parameters.loss(rank, m);
      if (m + 1 == micro_batches_of(rank)) reducer.begin_last_backward();
      loss.backward();
    }
    const std::vector<double> touched = gradients.touched();
    reducer.finish();
    ASSERT_TRUE(gradients.flat().equal(expected)) << "step " << step;
    // "first", "twice", "sometimes", "never", "last": a frozen one is none of them
    const double any = micro_batches_of(rank) > 0 ? 1.0 : 0.0;
    ASSERT_EQ(touched, (std::vector<double>{any, any, rank % 2 == 1 ? 1.0 : 0.0, 0.0, any}));
    const std::int64_t bytes = control().size() > 1 ? static_cast<std::int64_t>(gradients.flat().nbytes()) : 0;
    ASSERT_EQ(reducer.reduced_bytes(), bytes) << "whatever the number of micro-batches";
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, ReducerTest,
                         ::testing::Values(Way{comm::CollectiveQueue::Thread::callers, 64},
                                           Way{comm::CollectiveQueue::Thread::callers, 25 << 20},
                                           Way{comm::CollectiveQueue::Thread::own, 64},
                                           Way{comm::CollectiveQueue::Thread::own, 4000},
                                           Way{comm::CollectiveQueue::Thread::own, 25 << 20}));

TEST(ReducerWireTest, bfloat16_rounds_what_travels_and_nothing_else) {
  comm::CollectiveQueue queue(comm::CollectiveQueue::Thread::own);
  const auto device = cpu_device();
  const std::vector<NamedTensor> parameters = {{"only", leaf({1000})}};
  FlatGradients gradients(parameters);
  GradientReducer reducer(control(), queue, gradients, *device,
                          {.bucket_cap_bytes = 512, .overlap = true, .wire_type = at::kBFloat16});
  gradients.begin_step();
  for (int m = 0; m < 16; ++m) {  // accumulation stays float32: 16 small parts of what bfloat16 could not add
    const at::Tensor loss = (parameters[0].tensor * (1.0 / 512.0)).sum() +
                            (parameters[0].tensor * (m == 0 ? 1.0 + control().rank() : 0.0)).sum();
    if (m == 15) reducer.begin_last_backward();
    loss.backward();
  }
  reducer.finish();
  float expected = 0.0F;
  for (int rank = 0; rank < control().size(); ++rank)
    expected += comm::bfloat16_to_float(comm::float_to_bfloat16(1.0F + static_cast<float>(rank) + 16.0F / 512.0F));
  if (control().size() == 1) {
    EXPECT_EQ(gradients.flat()[0].item<float>(), 1.0F + 16.0F / 512.0F);  // nothing travels
    return;
  }
  expected = comm::bfloat16_to_float(comm::float_to_bfloat16(expected));
  EXPECT_EQ(gradients.flat()[0].item<float>(), expected);
  EXPECT_EQ(gradients.flat()[999].item<float>(), expected);
  EXPECT_EQ(reducer.reduced_bytes(), static_cast<std::int64_t>(gradients.flat().nbytes()) / 2);
}

Configuration small_configuration() {
  Configuration c;
  c.data.train.kind = "synthetic";
  c.data.train.shape = {20};
  c.data.train.size = 64;
  c.model.hidden = {30, 30};
  c.batch.global_batch_size = 16;
  return c;
}

// In the parameter of this index.
void find_and_mend_one_flipped_bit(const Configuration& c, std::size_t index) {
  const auto data = open_dataset(c.data.train, Split::train, 1);
  const auto device = cpu_device();
  Replica replica(c, *data, *device);
  EXPECT_EQ(mend_replicas(replica, control()), std::nullopt);
  const auto before = digest_of(replica.model->parameters());
  const int guilty = control().size() - 1;
  const NamedTensor parameter = replica.model->parameters()[index];
  if (control().rank() == guilty) static_cast<std::uint32_t*>(parameter.tensor.mutable_data_ptr())[17] ^= 1U;
  const auto found = mend_replicas(replica, control());
  if (control().size() == 1) {
    EXPECT_EQ(found, std::nullopt);
    return;
  }
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->ranks, std::vector<int>{guilty});
  EXPECT_EQ(found->parameter, parameter.name);
  EXPECT_EQ(digest_of(replica.model->parameters()), before);
  EXPECT_EQ(mend_replicas(replica, control()), std::nullopt);
}

TEST(ReplicaCheckTest, one_flipped_bit_on_one_rank_is_found_named_and_mended) {
  find_and_mend_one_flipped_bit(small_configuration(), 2);
}

TEST(ReplicaCheckTest, frozen_parameters_are_compared_and_mended_too) {
  Configuration c = small_configuration();
  c.model.freeze = {"layer1.*"};
  find_and_mend_one_flipped_bit(c, 2);
}

TEST(AgreementTest, a_failure_of_one_rank_is_everyones_with_its_words) {
  const int guilty = control().size() - 1;
  try {
    agree(control(), [&] {
      if (control().rank() == guilty) throw std::runtime_error("the loader is broken");
    });
    FAIL();
  } catch (const AgreedError& error) {
    EXPECT_NE(std::string(error.what()).find("the loader is broken"), std::string::npos);
    EXPECT_EQ(error.code(), control().rank() == guilty ? ExitCode::failed : ExitCode::peer_failed);
  }
}

TEST(AgreementTest, the_first_item_that_differs_is_named_with_both_ranks) {
  EXPECT_NO_THROW(check_same(control(), {{"a", "1"}, {"b", "2"}}));
  if (control().size() == 1) return;
  const int odd = control().size() - 1;
  const bool is_odd = control().rank() == odd;
  const auto complaint = [&](const std::vector<AgreedItem>& items) {
    try {
      check_same(control(), items);
    } catch (const AgreedError& error) {
      EXPECT_EQ(error.code(), ExitCode::user_error);
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string who = "rank 0 and rank " + std::to_string(odd) + " differ in ";
  EXPECT_EQ(complaint({{"a", "1"}, {"b", is_odd ? "3" : "2"}, {"c", "1"}}),
            who + "b: 2 on rank 0, 3 on rank " + std::to_string(odd));
  const std::vector<AgreedItem> one = {{"a", "1"}};
  const std::vector<AgreedItem> two = {{"a", "1"}, {"b", "2"}};
  EXPECT_EQ(complaint(is_odd ? one : two), who + "b: 2 on rank 0; rank " + std::to_string(odd) + " has none");
  EXPECT_EQ(complaint(is_odd ? two : one), who + "b: only rank " + std::to_string(odd) + " has it (2)");
}

}  // namespace
}  // namespace onebatch
