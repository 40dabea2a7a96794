// What exact BatchNorm costs on one rank: the time of a share of samples against plain accumulation (local BatchNorm) and against its floor
// (accumulation and one more forward), interleaved, and the memory that it needs beside what stays on the device anyway.
//   batch_norm_bench [ROUNDS] prints medians for ResNet-18 at 3x32x32 and 3x64x64.
#include "trainer/accumulation.hpp"
#include "trainer/device/memory_budget.hpp"
#include "trainer/graph/graph_step.hpp"
#include "trainer/probe/timing.hpp"

#include <ATen/core/grad_mode.h>

#include <chrono>
#include <cstdio>
#include <numeric>

namespace {

using namespace onebatch;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t k_share = 64;
constexpr std::int64_t k_micro_batch = 8;

Configuration configuration_of(BatchNormMode mode, std::int64_t size) {
  Configuration c;
  c.data.train.kind = DataKind::synthetic;
  c.data.train.shape = {3, size, size};
  c.data.train.size = k_share;
  c.model.kind = ModelKind::resnet;
  c.batch.global_batch_size = k_share;
  c.optimizer.kind = OptimizerKind::sgd;
  c.batch_norm.mode = mode;
  return c;
}

class Trainee {
 public:
  Trainee(BatchNormMode mode, std::int64_t size)
      : configuration_(configuration_of(mode, size)), data_(open_dataset(configuration_.data.train, Split::train, 1)), samples_(k_share) {
    std::iota(samples_.begin(), samples_.end(), std::int64_t{0});
    DeviceRequest request;
    request.simulate = {SimulatedDevice{}};
    device_ = bind_device(request);
    replica_ = std::make_unique<Replica>(configuration_, *data_, *device_);
  }

  double seconds(const std::vector<MicroBatchRun>& runs) {
    replica_->gradients.begin_step();
    const auto start = Clock::now();
    accumulate_gradient(*replica_, *data_, samples_, runs, 0);
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  double forward_seconds() {
    const at::NoGradGuard no_grad;
    const auto start = Clock::now();
    for (std::size_t begin = 0; begin < samples_.size(); begin += k_micro_batch) {
      const auto part = std::span<const std::int64_t>(samples_).subspan(begin, k_micro_batch);
      const Batch batch = data_->gather(part, at::kFloat);
      const at::Tensor loss = replica_->loss.sum(replica_->model->forward(batch.inputs[0], {1, 0, part}), batch.targets);
    }
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  // Above what is held between steps.
  double peak_bytes(const std::vector<MicroBatchRun>& runs) {
    seconds(runs);
    device_->reset_peak();
    const auto held = device_->current_bytes();
    seconds(runs);
    return static_cast<double>(device_->peak_bytes() - held);
  }

  Replica& replica() { return *replica_; }

 private:
  Configuration configuration_;
  std::unique_ptr<Dataset> data_;
  std::vector<std::int64_t> samples_;
  std::unique_ptr<ComputeDevice> device_;
  std::unique_ptr<Replica> replica_;
};

void compare(std::int64_t size, int rounds) {
  const std::vector<MicroBatchRun> accumulated = {{k_micro_batch, k_share / k_micro_batch}};
  const std::vector<MicroBatchRun> whole = {{k_share, 1}};
  Trainee plain(BatchNormMode::local, size);
  Trainee exact(BatchNormMode::exact, size);
  std::vector<double> over_plain;
  std::vector<double> over_floor;
  for (int round = -1; round < rounds; ++round) {
    const double accumulation = plain.seconds(accumulated);
    const double ours = exact.seconds(accumulated);
    const double floor = accumulation + plain.forward_seconds();
    if (round < 0) continue;  // captures, and warms up
    over_plain.push_back(ours / accumulation);
    over_floor.push_back(ours / floor);
  }
  const double one_batch = plain.peak_bytes(whole);
  const double plain_peak = plain.peak_bytes(accumulated);
  const double kept = exact.peak_bytes(accumulated);
  exact.replica().graph_step->move_to_host();
  const double in_host = exact.peak_bytes(accumulated);
  std::printf("ResNet-18, 3x%ldx%ld, %ld samples in micro-batches of %ld, median of %d rounds\n", static_cast<long>(size),
              static_cast<long>(size), static_cast<long>(k_share), static_cast<long>(k_micro_batch), rounds);
  std::printf("  time over plain accumulation %.3f, over accumulation and one more forward %.3f\n", median(over_plain), median(over_floor));
  std::printf(
      "  peak memory over one batch of the same share %.2f; over plain accumulation's %.2f, with what it keeps in host memory %.2f\n",
      kept / one_batch, kept / plain_peak, in_host / plain_peak);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  for (const std::int64_t size : {32, 64}) compare(size, rounds);
}
