// The library call for programs with a loop of their own.
#include "trainer/probe/find_batch_size.hpp"

#include "trainer/base/error.hpp"
#include "trainer/device/memory_budget.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>
#include <torch/nn/modules.h>
#include <torch/optim/adam.h>

namespace onebatch {
namespace {

namespace nn = torch::nn;

class FindBatchSizeTest : public ::testing::Test {
 protected:
  void TearDown() override { MemoryBudget::install().set_limit_bytes(MemoryBudget::k_no_limit); }

  // What is held now, and so much more.
  std::unique_ptr<ComputeDevice> device_of(std::int64_t more_bytes) {
    DeviceRequest request;
    request.simulate = {SimulatedDevice{MemoryBudget::install().current_bytes() + more_bytes, 1.0, {}, {}}};
    return bind_device(request);
  }

  template <typename Holder>
  SearchResult search(Holder& model, std::int64_t more_bytes, std::vector<std::int64_t> input,
                      std::vector<std::int64_t> output, std::int64_t dataset_size = 100000) {
    const auto device = device_of(more_bytes);
    return search_batch_size({*model, [&](const at::Tensor& x) { return model->forward(x); }, std::move(input),
                              std::move(output), dataset_size, std::nullopt},
                             *device);
  }
};

nn::Sequential network() {
  MemoryBudget::install();
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(3, 16, 3).padding(1)), nn::BatchNorm2d(16), nn::ReLU(),
                        nn::Dropout(0.1), nn::Flatten(), nn::Linear(16 * 8 * 8, 10));
}

TEST_F(FindBatchSizeTest, is_limited_by_memory_and_leaves_everything_as_it_was) {
  auto model = network();
  model->eval();
  model[0]->train();
  model->parameters()[0].mutable_grad() = at::rand_like(model->parameters()[0]);
  std::vector<at::Tensor> before;
  for (const auto& p : model->parameters()) before.push_back(p.detach().clone());
  for (const auto& b : model->buffers()) before.push_back(b.clone());
  const at::Tensor gradient = model->parameters()[0].grad().clone();
  const at::Tensor draws = at::detail::getDefaultCPUGenerator().get_state().clone();
  const std::int64_t held = MemoryBudget::install().current_bytes();

  const SearchResult found = search(model, 16 << 20, {3, 8, 8}, {10});
  EXPECT_GT(found.largest_micro_batch, 100);
  EXPECT_LT(found.largest_micro_batch, 100000);
  EXPECT_EQ(MemoryBudget::install().current_bytes(), held) << "everything is freed";
  std::size_t i = 0;
  for (const auto& p : model->parameters()) EXPECT_TRUE(at::equal(p, before[i++]));
  for (const auto& b : model->buffers()) EXPECT_TRUE(at::equal(b, before[i++]));
  EXPECT_TRUE(at::equal(model->parameters()[0].grad(), gradient));
  EXPECT_FALSE(model->parameters()[1].grad().defined());
  EXPECT_TRUE(at::equal(at::detail::getDefaultCPUGenerator().get_state(), draws));
  EXPECT_FALSE(model->is_training());
  EXPECT_TRUE(model[0]->is_training());
  EXPECT_FALSE(model[1]->is_training());
}

// As tutorials write it: outputs and loss live until the step is over.
TEST_F(FindBatchSizeTest, a_loop_of_ones_own_fits_at_the_size_that_was_found) {
  nn::Sequential model(nn::Linear(64, 32), nn::ReLU(), nn::Linear(32, 512));
  const SearchResult found = search(model, 16 << 20, {64}, {512});
  const auto limited = device_of(16 << 20);
  torch::optim::Adam adam(model->parameters());
  for (int step = 0; step < 3; ++step) {
    adam.zero_grad(/*set_to_none=*/false);
    const at::Tensor inputs = at::rand({found.largest_micro_batch, 64});
    const at::Tensor targets = at::rand({found.largest_micro_batch, 512});
    const at::Tensor outputs = model->forward(inputs);
    at::Tensor loss = at::mse_loss(outputs, targets);
    ASSERT_NO_THROW(loss.backward()) << "step " << step;
    adam.step();
  }
  const std::int64_t more = found.largest_micro_batch + found.largest_micro_batch / 10;
  EXPECT_THROW(at::mse_loss(model->forward(at::rand({more, 64})), at::rand({more, 512})).backward(),
               c10::OutOfMemoryError);
}

TEST_F(FindBatchSizeTest, takes_the_arguments_of_the_tutorials) {
  nn::Linear model(32, 4);
  EXPECT_EQ(find_batch_size(model, at::kCPU, {32}, {4}, 50), 50) << "a data set smaller than the limit";
  EXPECT_EQ(find_batch_size(model, at::kCPU, {32}, {4}, 1000, 64), 64);
  EXPECT_EQ(find_batch_size(model, at::kCPU, {32}, {4}, 1000, 64, 2), 64);
}

TEST_F(FindBatchSizeTest, a_model_that_needs_two_samples_gets_them) {
  nn::Sequential model(nn::Linear(8, 8), nn::BatchNorm1d(8));
  const SearchResult found = search(model, 64 << 20, {8}, {8}, 200);
  EXPECT_EQ(found.min_micro_batch, 2);
  EXPECT_EQ(found.largest_micro_batch, 200);
}

// One layer under two names, as where an embedding is the output's weight too.
struct TiedImpl : nn::Module {
  TiedImpl() : layer(register_module("layer", nn::Linear(64, 64))) { register_module("again", layer); }
  at::Tensor forward(const at::Tensor& x) { return layer(layer(x)); }
  nn::Linear layer;
};
TORCH_MODULE(Tied);

TEST_F(FindBatchSizeTest, parameters_may_be_shared) {
  Tied model;
  ASSERT_EQ(model->named_parameters().size(), 4);
  const at::Tensor before = model->layer->weight.detach().clone();
  EXPECT_GT(search(model, 16 << 20, {64}, {64}).largest_micro_batch, 100);
  EXPECT_TRUE(at::equal(model->layer->weight, before));
}

TEST_F(FindBatchSizeTest, what_cannot_be_is_said) {
  nn::Linear model(64, 64);
  EXPECT_THROW(search(model, 1000, {64}, {64}), DoesNotFitError) << "not even parameters and gradients";
  EXPECT_THROW(search(model, 80 << 10, {4096, 64}, {4096, 64}), DoesNotFitError) << "not even one sample";
  EXPECT_THROW(search(model, 1 << 20, {63}, {64}), std::exception) << "the module's own error";
  EXPECT_THROW(search(model, 1 << 20, {64}, {64}, 0), UserError);
  for (auto& p : model->parameters()) p.set_requires_grad(false);
  EXPECT_THROW(search(model, 1 << 20, {64}, {64}), UserError);
}

}  // namespace
}  // namespace onebatch
