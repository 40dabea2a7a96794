#include "trainer/checkpoint/host_copy.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cstring>

namespace onebatch {
namespace {

std::vector<float> values_of(const SafetensorsView& view) {
  std::vector<float> values(view.bytes.size() / sizeof(float));
  std::memcpy(values.data(), view.bytes.data(), view.bytes.size());
  return values;
}

TEST(HostCopyTest, training_on_does_not_change_it) {
  const at::Tensor weight = at::arange(6, at::kFloat).view({2, 3});
  const at::Tensor moment = at::full({3}, 0.5F);
  HostCopy copy;
  RunState state;
  state.step = 9;
  const auto [contents, pending] = copy.take(
      state,
      {.model = {{"weight", weight}}, .optimizer = {{"exp_avg.weight", moment}}, .buffers = {}, .generators = {}});
  EXPECT_TRUE(pending.empty());
  weight.fill_(-1);
  moment.fill_(-1);
  EXPECT_EQ(contents.state.step, 9);
  ASSERT_EQ(contents.model.size(), 1U);
  EXPECT_EQ(contents.model[0].name, "weight");
  EXPECT_EQ(contents.model[0].dtype, "F32");
  EXPECT_EQ(contents.model[0].shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(values_of(contents.model[0]), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(values_of(contents.optimizer.at(0)), (std::vector<float>{0.5, 0.5, 0.5}));
}

TEST(HostCopyTest, what_only_updates_change_is_copied_later_and_all_else_at_once) {
  const at::Tensor weight = at::full({2}, 1.0F);
  const at::Tensor running_mean = at::full({2}, 1.0F);
  HostCopy copy;
  const auto [contents, pending] =
      copy.take({}, {.model = {{"weight", weight}, {"again", weight}, {"running_mean", running_mean}},
                     .optimizer = {},
                     .buffers = {},
                     .generators = {},
                     .still = {{"weight", weight}}});
  ASSERT_EQ(pending.size(), 1U);
  weight.fill_(2);
  running_mean.fill_(2);
  finish_copies(pending);
  EXPECT_EQ(values_of(contents.model.at(0)), (std::vector<float>{2, 2}));
  EXPECT_EQ(values_of(contents.model.at(1)), (std::vector<float>{2, 2}));
  EXPECT_EQ(values_of(contents.model.at(2)), (std::vector<float>{1, 1}));
}

TEST(HostCopyTest, another_order_in_memory_is_written_in_the_order_of_the_shape) {
  const at::Tensor transposed = at::arange(6, at::kFloat).view({2, 3}).t();
  HostCopy copy;
  const CheckpointContents contents =
      copy.take({}, {.model = {{"t", transposed}}, .optimizer = {}, .buffers = {}, .generators = {}}).contents;
  EXPECT_EQ(values_of(contents.model.at(0)), (std::vector<float>{0, 3, 1, 4, 2, 5}));
}

TEST(HostCopyTest, a_tensor_of_two_names_is_copied_once) {
  const at::Tensor shared = at::arange(16, at::kFloat);
  const LiveState live{
      .model = {{"a", shared}, {"b", shared}}, .optimizer = {{"c", at::empty({0})}}, .buffers = {}, .generators = {}};
  EXPECT_EQ(HostCopy::bytes_needed(live), 64U);
  HostCopy copy;
  const CheckpointContents contents = copy.take({}, live).contents;
  EXPECT_EQ(contents.model.at(0).bytes.data(), contents.model.at(1).bytes.data());
  EXPECT_EQ(contents.optimizer.at(0).bytes.size(), 0U);
}

TEST(HostCopyTest, the_next_copy_takes_the_same_memory) {
  const LiveState live{
      .model = {{"a", at::arange(1000, at::kFloat)}}, .optimizer = {}, .buffers = {}, .generators = {}};
  HostCopy copy;
  const CheckpointContents first = copy.take({}, live).contents;
  const std::size_t capacity = copy.capacity_bytes();
  EXPECT_GE(capacity, 4000U);
  const CheckpointContents second = copy.take({}, live).contents;
  EXPECT_EQ(copy.capacity_bytes(), capacity);
  EXPECT_EQ(first.model.at(0).bytes.data(), second.model.at(0).bytes.data());
}

}  // namespace
}  // namespace onebatch
