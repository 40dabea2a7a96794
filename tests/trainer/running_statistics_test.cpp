// What ranks average of a model's buffers, and what they leave alone.
#include "trainer/batch_norm/running_statistics.hpp"

#include "comm/ranks_main.hpp"
#include "trainer/base/error.hpp"
#include "trainer/models/trainable_module.hpp"
#include "trainer/replica/replica_check.hpp"
#include "trainer/step/graph_step.hpp"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <limits>

namespace onebatch {
namespace {

using onebatch::testing::world;
namespace nn = torch::nn;

constexpr double k_infinity = std::numeric_limits<double>::infinity();

// A BatchNorm, and a mask as transformers have it.
class MaskedModule final : public TrainableModule {
 public:
  MaskedModule() {
    norm_ = register_module("norm", nn::BatchNorm1d(3));
    head_ = register_module("head", nn::Linear(3, 10));
    mask_ = register_buffer("mask", at::full({3, 3}, -k_infinity, at::kFloat).triu_(1));
  }
  at::Tensor forward(const at::Tensor& inputs, const ForwardContext& /*context*/) override {
    return head_->forward(at::matmul(norm_->forward(inputs), mask_.softmax(-1)));
  }

 private:
  nn::BatchNorm1d norm_{nullptr};
  nn::Linear head_{nullptr};
  at::Tensor mask_;
};

class Trainee {
 public:
  explicit Trainee(BatchNormMode mode, bool frozen = false) {
    Configuration c;
    c.data.train.kind = "synthetic";
    c.data.train.shape = {3};
    c.data.train.size = 8;
    c.batch_norm.mode = mode;
    c.batch_norm.frozen = frozen;
    DeviceRequest request;
    request.simulate.assign(static_cast<std::size_t>(world().control().size()), SimulatedDevice{});
    request.rank = world().control().rank();
    device_ = bind_device(request);
    data_ = open_dataset(c.data.train, Split::train, 1);
    ModelRequest model;
    model.freeze_batch_norm = frozen;
    replica =
        std::make_unique<Replica>(c, *data_, *device_, wrap_module(std::make_shared<MaskedModule>(), model), nullptr);
  }
  [[nodiscard]] at::Tensor buffer(const std::string& name) const {
    for (const NamedTensor& one : replica->model->buffers()) {
      if (one.name == name) return one.tensor;
    }
    throw std::out_of_range(name);
  }

 private:
  std::unique_ptr<ComputeDevice> device_;
  std::unique_ptr<Dataset> data_;

 public:
  std::unique_ptr<Replica> replica;
};

std::vector<std::string> names_of(const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> names;
  for (const NamedTensor& one : tensors) names.push_back(one.name);
  return names;
}

TEST(RunningStatisticsTest, each_rank_has_its_own_under_local_batch_norm_alone) {
  const std::vector<std::string> statistics = {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"};
  EXPECT_EQ(names_of(Trainee(BatchNormMode::local).replica->own_statistics()), statistics);
  EXPECT_TRUE(Trainee(BatchNormMode::exact).replica->own_statistics().empty());
  EXPECT_TRUE(Trainee(BatchNormMode::sync).replica->own_statistics().empty());
  EXPECT_TRUE(Trainee(BatchNormMode::local, true).replica->own_statistics().empty());
  EXPECT_EQ(names_of(Trainee(BatchNormMode::exact).replica->other_buffers()), (std::vector<std::string>{"mask"}));
}

// Rank r has done r micro-batches of weight r, so rank 0 nothing, and its statistics may be anything.
TEST(RunningStatisticsTest, are_averaged_by_weight_and_a_mask_is_left_alone) {
  const Trainee ours(BatchNormMode::local);
  const int rank = world().control().rank();
  const int size = world().control().size();
  const at::Tensor mean = ours.buffer("norm.running_mean");
  const at::Tensor mask = ours.buffer("mask").clone();
  mean.fill_(rank == 0 && size > 1 ? k_infinity : 10.0 * rank);
  ours.buffer("norm.num_batches_tracked").fill_(rank);
  {
    const AveragedStatistics averaged(ours.replica->own_statistics(), rank, world().control());
    double weighted = 0.0;
    double total = 0.0;
    for (int r = 0; r < size; ++r) {
      weighted += 10.0 * r * r;
      total += r;
    }
    const double expected = size > 1 ? weighted / total : 0.0;
    EXPECT_NEAR(mean[0].item<double>(), expected, 1e-6 * expected);
    EXPECT_EQ(ours.buffer("norm.num_batches_tracked").item<std::int64_t>(), size - 1);
    EXPECT_TRUE(ours.buffer("mask").equal(mask));
  }
  EXPECT_EQ(mean[0].item<double>(), rank == 0 && size > 1 ? k_infinity : 10.0 * rank);
}

TEST(RunningStatisticsTest, a_buffer_that_is_none_and_differs_is_named) {
  const Trainee ours(BatchNormMode::local);
  ours.buffer("norm.running_mean").fill_(world().control().rank());
  EXPECT_NO_THROW(check_other_buffers(*ours.replica, world().control()));
  if (world().control().size() == 1) return;
  ours.buffer("mask")[0].fill_(world().control().rank());
  try {
    check_other_buffers(*ours.replica, world().control());
    FAIL();
  } catch (const AgreedError& error) {
    EXPECT_EQ(error.code(), ExitCode::user_error);
    EXPECT_NE(std::string(error.what()).find("mask"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace onebatch
