#include "trainer/models/exported_masks.hpp"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

namespace onebatch {
namespace {

constexpr Slot k_x = 0;
constexpr Slot k_length = 1;
constexpr Slot k_mask = 2;
constexpr Slot k_y = 3;

Operand value(Slot slot) {
  Operand operand;
  operand.form = Operand::Form::value;
  operand.slot = slot;
  return operand;
}

Call call(std::string name, std::vector<Operand> operands, Slot result, std::function<void(torch::jit::Stack&)> make) {
  Call made;
  made.name = std::move(name);
  made.operands = std::move(operands);
  made.results.push_back({result, {}, false});
  made.make = std::move(make);
  made.is_pure = true;
  return made;
}

// y = attention(x, x, x, mask), where the mask is made of x's second size; what attention is given is kept.
class MasksTest : public ::testing::Test {
 protected:
  void build(const std::function<at::Tensor(std::int64_t)>& mask_for) {
    block_.num_slots = 4;
    block_.inputs = {k_x};
    block_.outputs = {value(k_y)};
    block_.calls.push_back(call("torch.ops.aten.sym_size.int (size)", {value(k_x), {}}, k_length,
                                [](torch::jit::Stack& stack) { stack = {stack[0].toTensor().size(1)}; }));
    block_.calls.push_back(
        call("torch.ops.aten.made_up.default", {value(k_length)}, k_mask, [this, mask_for](torch::jit::Stack& stack) {
          ++masks_made_;
          stack = {mask_for(stack[0].toInt())};
        }));
    Call attention =
        call("torch.ops.aten.scaled_dot_product_attention.default (y)",
             {value(k_x), value(k_x), value(k_x), value(k_mask), {}, {}}, k_y, [this](torch::jit::Stack& stack) {
               mask_ = stack[3].isTensor() ? stack[3].toTensor() : at::Tensor();
               is_causal_ = stack[5].toBool();
               stack.resize(1);
             });
    attention.operands[4].constant = 0.0;
    attention.operands[5].constant = false;
    block_.calls.push_back(std::move(attention));
    note_last_readers(block_);
  }

  void run(AttentionMasks& masks, std::int64_t samples, std::int64_t length) {
    const std::vector<at::Tensor> inputs = {at::zeros({samples, length, 2})};
    ASSERT_EQ(masks.block_for(inputs).run({inputs.begin(), inputs.end()}).size(), 1U);
  }

  Block block_;
  RunMode mode_;
  int masks_made_ = 0;
  at::Tensor mask_;
  bool is_causal_ = false;
};

at::Tensor all_true(std::int64_t length) {
  return at::ones({1, 1, length, length}, at::kBool);
}

// Its fifth and later positions see four.
at::Tensor window(std::int64_t length) {
  return all_true(length).tril().logical_and(all_true(length).triu(-3));
}

TEST_F(MasksTest, WhatMasksNothingIsLeftOut) {
  build(all_true);
  AttentionMasks masks(block_, mode_);
  run(masks, 3, 5);
  EXPECT_FALSE(mask_.defined());
  EXPECT_FALSE(is_causal_);
}

TEST_F(MasksTest, WhatMasksWhatComesLaterIsSaidInAWord) {
  build([](std::int64_t length) { return all_true(length).tril(); });
  AttentionMasks masks(block_, mode_);
  run(masks, 3, 5);
  EXPECT_FALSE(mask_.defined());
  EXPECT_TRUE(is_causal_);
}

TEST_F(MasksTest, AMaskIsMadeOnceForItsSizes) {
  build(all_true);
  AttentionMasks masks(block_, mode_);
  for (int i = 0; i < 3; ++i) run(masks, 3, 5);
  EXPECT_EQ(masks_made_, 1);
  run(masks, 4, 5);
  EXPECT_EQ(masks_made_, 2);
}

TEST_F(MasksTest, EachLengthHasItsOwn) {
  build(window);
  AttentionMasks masks(block_, mode_);
  run(masks, 3, 4);
  EXPECT_TRUE(is_causal_);
  run(masks, 3, 5);
  EXPECT_FALSE(is_causal_);
  EXPECT_TRUE(mask_.equal(window(5)));
  run(masks, 3, 4);
  EXPECT_TRUE(is_causal_);
}

TEST_F(MasksTest, AMaskOfNumbersStays) {
  build([](std::int64_t length) { return at::zeros({length, length}); });
  AttentionMasks masks(block_, mode_);
  run(masks, 3, 5);
  EXPECT_TRUE(mask_.defined());
}

TEST_F(MasksTest, AMaskOfEveryQueryAlikeIsNotOfWhatComesLater) {
  build([](std::int64_t length) { return at::ones({1, length}, at::kBool).tril(); });
  AttentionMasks masks(block_, mode_);
  run(masks, 3, 5);
  EXPECT_TRUE(mask_.defined());
}

TEST_F(MasksTest, WhatSomeCallWritesToStays) {
  build(all_true);
  block_.calls[1].is_pure = false;
  AttentionMasks masks(block_, mode_);
  run(masks, 3, 5);
  EXPECT_TRUE(mask_.defined());
}

TEST_F(MasksTest, WhatReadsTheDataStays) {
  build(all_true);
  block_.calls[1].operands = {value(k_x)};
  block_.calls[1].make = [](torch::jit::Stack& stack) { stack = {all_true(stack[0].toTensor().size(1))}; };
  AttentionMasks masks(block_, mode_);
  run(masks, 3, 5);
  EXPECT_TRUE(mask_.defined());
}

// It would take the calls that make it along.
TEST_F(MasksTest, TheSizeOfWhatTheModelComputesIsNotKnownBefore) {
  build(all_true);
  block_.num_slots = 5;
  block_.calls.insert(block_.calls.begin(), call("torch.ops.aten.linear.default (linear)", {value(k_x), {}}, 4,
                                                 [](torch::jit::Stack& stack) { stack = {stack[0]}; }));
  block_.calls[0].is_pure = false;
  block_.calls[1].operands[0] = value(4);
  note_last_readers(block_);
  AttentionMasks masks(block_, mode_);
  run(masks, 3, 5);
  EXPECT_TRUE(mask_.defined());
}

TEST_F(MasksTest, OnesAsManyAsAnInputHasAreOfItsSize) {
  build(all_true);
  block_.calls[1] = call("torch.ops.aten.ones_like.default (ones)", {value(k_x)}, k_mask, [](torch::jit::Stack& stack) {
    const at::Tensor& x = stack[0].toTensor();
    EXPECT_TRUE(x.eq(0).all().item<bool>());
    stack = {at::ones(x.sizes(), at::kBool)};
  });
  note_last_readers(block_);
  AttentionMasks masks(block_, mode_);
  const std::vector<at::Tensor> inputs = {at::ones({3, 5, 2})};
  const auto returned = masks.block_for(inputs).run({inputs.begin(), inputs.end()});
  EXPECT_FALSE(mask_.defined());
}

TEST_F(MasksTest, WhatIsReadElsewhereIsStillMade) {
  build(all_true);
  block_.outputs.push_back(value(k_mask));
  note_last_readers(block_);
  AttentionMasks masks(block_, mode_);
  const std::vector<at::Tensor> inputs = {at::zeros({3, 5, 2})};
  const auto returned = masks.block_for(inputs).run({inputs.begin(), inputs.end()});
  ASSERT_EQ(returned.size(), 2U);
  EXPECT_TRUE(returned[1].toTensor().equal(all_true(5)));
  EXPECT_FALSE(mask_.defined());
}

}  // namespace
}  // namespace onebatch
