// What is put back after a replica was borrowed, and that it is kept once for borrowings within each other.
#include "tests/trainer/stepped_replica.hpp"
#include "trainer/device/memory_budget.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <bit>

namespace onebatch {
namespace {

at::Tensor counted(at::IntArrayRef shape) {
  return at::arange(24, at::kFloat).view(shape);
}

// NaNs, a minus before a zero: bits, not values.
at::Tensor odd_bits() {
  at::Tensor odd = at::empty({3}, at::kFloat);
  auto* const numbers = odd.mutable_data_ptr<float>();
  numbers[0] = std::bit_cast<float>(0x7fc12345U);
  numbers[1] = std::bit_cast<float>(0xff812345U);
  numbers[2] = -0.0F;
  return odd;
}

std::vector<NamedTensor> of_all_layouts() {
  return {{"plain", counted({4, 6})},
          {"turned", counted({4, 6}).t()},
          {"images", counted({2, 3, 2, 2}).contiguous(at::MemoryFormat::ChannelsLast)},
          {"part", counted({4, 6}).narrow(1, 1, 3)},
          {"scalar", at::ones({}, at::kLong)},
          {"none", at::empty({0, 3})},
          {"flags", at::ones({5}, at::kBool)},
          {"odd", odd_bits()}};
}

TEST(SavedTensorsTest, puts_back_the_bits_of_every_layout) {
  const std::vector<NamedTensor> live = of_all_layouts();
  const Digest before = digest_of(live);
  const SavedTensors saved(live);
  EXPECT_EQ(digest_of(saved.copies()), before);
  for (const auto& [name, tensor] : live) tensor.zero_();
  EXPECT_NE(digest_of(live), before);
  saved.restore();
  EXPECT_EQ(digest_of(live), before);
}

TEST(SavedTensorsTest, counts_for_no_device) {
  MemoryBudget& budget = MemoryBudget::install();
  const std::vector<NamedTensor> live = {{"large", at::ones({1 << 20})}, {"turned", at::ones({1 << 10, 1 << 10}).t()}};
  const std::int64_t held = budget.current_bytes();
  const SavedTensors saved(live);
  EXPECT_EQ(budget.current_bytes(), held);
}

// Before the first step momentum is zero, and not copied.
TEST(ReplicaSnapshotTest, puts_back_what_was_zero_and_what_was_not) {
  testing::SteppedReplica borrowed(testing::small_resnet(96));
  Replica& replica = borrowed.replica();
  for (const bool later : {false, true}) {
    const auto state = replica.optimizer.state();
    if (later) state.front().tensor.fill_(-0.0);
    if (later) state.back().tensor.fill_(1e-42);
    const Digest before = digest_of(replica);
    const ReplicaSnapshot snapshot(replica);
    for (const auto& [name, tensor] : state) tensor.add_(1.0);
    for (const auto& [name, tensor] : replica.model->parameters()) tensor.data().add_(1.0);
    EXPECT_NE(digest_of(replica), before);
    snapshot.restore(replica);
    EXPECT_EQ(digest_of(replica), before);
  }
}

TEST(KeptStateTest, within_a_borrowing_is_that_of_its_beginning) {
  testing::SteppedReplica borrowed(testing::small_resnet(96));
  Replica& replica = borrowed.replica();
  const Digest before = digest_of(replica);
  {
    const auto outer = kept_state(replica);
    replica.model->parameters().front().tensor.data().add_(1.0);
    const auto inner = kept_state(replica);
    EXPECT_EQ(inner, outer);
    inner->restore(replica);
    EXPECT_EQ(digest_of(replica), before);
  }
  replica.model->parameters().front().tensor.data().add_(1.0);
  const Digest later = digest_of(replica);
  const auto anew = kept_state(replica);
  replica.model->parameters().front().tensor.data().add_(1.0);
  anew->restore(replica);
  EXPECT_EQ(digest_of(replica), later) << "nobody held the first any more";
}

}  // namespace
}  // namespace onebatch
