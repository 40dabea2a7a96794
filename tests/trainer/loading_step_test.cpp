// Steps whose samples were read ahead are the steps of a run that reads by itself, bit for bit, whatever was announced.
#include "tests/trainer/stepped_replica.hpp"
#include "trainer/data/augment.hpp"
#include "trainer/data/sample_order.hpp"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <optional>

namespace onebatch {
namespace {

constexpr std::int64_t k_size = 300;
constexpr std::int64_t k_batch = 64;

Configuration configuration_of(const std::string& model, BatchNormMode mode) {
  Configuration c;
  c.data.train.kind = "synthetic";
  c.data.train.shape = {3, 8, 8};
  c.data.train.size = k_size;
  c.data.augment.crop_padding = 2;
  c.data.augment.horizontal_flip = true;
  c.model.kind = model;
  c.model.hidden = {32};
  c.model.dropout = model == "mlp" ? 0.1 : 0.0;
  c.model.depth = 8;
  c.model.stem = ResNetStem::cifar;
  c.batch_norm.mode = mode;
  c.batch.global_batch_size = k_batch;
  c.optimizer.kind = "sgd";
  c.optimizer.momentum = 0.9;
  return c;
}

Plan plan_of(std::int64_t batch, std::int64_t micro_batch) {
  Plan plan;
  plan.global_batch_size = batch;
  RankPlan rank;
  rank.samples = batch;
  if (batch / micro_batch > 0) rank.micro_batches.push_back({micro_batch, batch / micro_batch});
  if (batch % micro_batch > 0) rank.micro_batches.push_back({batch % micro_batch, 1});
  plan.ranks = {rank};
  return plan;
}

// What is announced of the coming steps.
enum class Announced { all, every_other, of_another_plan, of_another_epoch };

class Trainee : public testing::SteppedReplica {
 public:
  Trainee(const Configuration& configuration, std::int64_t micro_batch, std::int64_t workers, Announced announced)
      : SteppedReplica(configuration), micro_batch_(micro_batch), announced_(announced) {
    loader_.emplace(
        [data = data(), host = replica().host_part(), type = replica().loss_type, augment = replica().augment,
         seed = replica().seed, this](const ReadRequest& asked) {
          ++reads_ahead_;
          return host.of(read_of(TrainingData(*data, augment, {seed, asked.epoch}), asked.samples, type, asked.length));
        },
        LoaderOptions{});
    loader_->add_workers(workers);
  }

  Digest train(std::int64_t num_steps, const OrderPosition& from = {}) {
    SampleOrder order(3, k_size, k_batch, LastBatch::exact, from);
    SampleOrder coming = order;
    loader_->forget();
    for (std::int64_t i = 0; i < num_steps; ++i) {
      while (loader_->num_announced() < 12) announce(coming);
      const std::int64_t epoch = order.position().epoch;
      const std::vector<std::int64_t> batch = order.next();
      const Plan plan = plan_of(static_cast<std::int64_t>(batch.size()), micro_batch_);
      const StepTotals totals = steps().run({.global_batch = batch,
                                             .epoch = epoch,
                                             .plan = plan,
                                             .lr = 0.05,
                                             .step = step_number_++,
                                             .loader = &*loader_});
      EXPECT_GE(totals.compute_seconds.at(0), 0.0);
      EXPECT_GT(totals.data_wait_seconds.at(0), 0.0);
      position_ = order.position();
    }
    return digest();
  }

  [[nodiscard]] const OrderPosition& position() const { return position_; }
  [[nodiscard]] std::int64_t reads_ahead() const { return reads_ahead_; }

 private:
  void announce(SampleOrder& coming) {
    const std::int64_t epoch = coming.position().epoch + (announced_ == Announced::of_another_epoch ? 1 : 0);
    const std::vector<std::int64_t> batch = coming.next();
    const std::int64_t size = announced_ == Announced::of_another_plan ? micro_batch_ + 1 : micro_batch_;
    const Plan plan = plan_of(static_cast<std::int64_t>(batch.size()), size);
    std::vector<ReadRequest> requests;
    for (const auto part : micro_batches_of(batch, plan.ranks[0].micro_batches)) {
      if (announced_ == Announced::every_other && count_++ % 2 == 0) continue;
      requests.push_back({part, epoch, 0});
    }
    loader_->announce(requests);
  }

  std::int64_t micro_batch_;
  Announced announced_;
  std::atomic<std::int64_t> reads_ahead_{0};
  std::optional<Loader> loader_;
  std::int64_t step_number_ = 0;
  std::int64_t count_ = 0;
  OrderPosition position_;
};

void expect_the_same_bits(const Configuration& configuration, std::int64_t micro_batch, std::int64_t steps) {
  at::set_num_threads(1);  // of small kernels, on a machine that may be busy
  const Digest alone = Trainee(configuration, micro_batch, 0, Announced::all).train(steps);
  for (const std::int64_t workers : {1, 4}) {
    for (const Announced announced :
         {Announced::all, Announced::every_other, Announced::of_another_plan, Announced::of_another_epoch}) {
      Trainee trainee(configuration, micro_batch, workers, announced);
      EXPECT_EQ(trainee.train(steps), alone) << workers << " workers, announced " << static_cast<int>(announced);
      EXPECT_GT(trainee.reads_ahead(), 0);
    }
    Trainee parts(configuration, micro_batch, workers, Announced::all);
    parts.train(steps - steps / 3);  // in mid-epoch
    EXPECT_EQ(parts.train(steps / 3, parts.position()), alone) << workers << " workers, in two parts";
  }
  Configuration plain = configuration;
  plain.data.augment = {};
  EXPECT_NE(Trainee(plain, micro_batch, 1, Announced::all).train(steps), alone) << "the changes of samples are in it";
}

TEST(LoadingStepTest, fifty_steps_of_an_mlp_are_the_same) {
  expect_the_same_bits(configuration_of("mlp", BatchNormMode::local), 20, 50);
}

TEST(LoadingStepTest, steps_of_a_resnet_are_the_same_in_every_mode_of_batch_norm) {
  for (const BatchNormMode mode : {BatchNormMode::local, BatchNormMode::exact, BatchNormMode::sync})
    expect_the_same_bits(configuration_of("resnet", mode), 24, 7);
}

}  // namespace
}  // namespace onebatch
