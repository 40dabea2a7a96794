// What exact BatchNorm costs on one rank: the time of a share of samples against plain accumulation (local BatchNorm)
// and against its floor (accumulation and one more forward), interleaved, and the memory that it needs beside what
// stays on the device anyway.
//   batch_norm_bench [ROUNDS] prints medians for ResNet-18 at 3x32x32 and 3x64x64.
#include "comm/statistics.hpp"
#include "comm/stopwatch.hpp"
#include "trainer/device/memory_budget.hpp"
#include "trainer/step/accumulation.hpp"
#include "trainer/step/graph_step.hpp"

#include <ATen/core/grad_mode.h>

#include <cstdio>
#include <numeric>

namespace {

using namespace onebatch;

constexpr std::int64_t k_micro_batch = 8;

struct Share {
  std::int64_t size;  // pixels to a side
  std::int64_t samples;

  [[nodiscard]] std::vector<MicroBatchRun> accumulated() const { return {{k_micro_batch, samples / k_micro_batch}}; }
  [[nodiscard]] std::vector<MicroBatchRun> whole() const { return {{samples, 1}}; }
};

Configuration configuration_of(BatchNormMode mode, const Share& share) {
  Configuration c;
  c.data.train.kind = "synthetic";
  c.data.train.shape = {3, share.size, share.size};
  c.data.train.size = share.samples;
  c.model.kind = "resnet";
  c.batch.global_batch_size = share.samples;
  c.optimizer.kind = "sgd";
  c.batch_norm.mode = mode;
  return c;
}

class Trainee {
 public:
  Trainee(BatchNormMode mode, const Share& share)
      : configuration_(configuration_of(mode, share)),
        data_(open_dataset(configuration_.data.train, Split::train, 1)),
        samples_(static_cast<std::size_t>(share.samples)) {
    std::iota(samples_.begin(), samples_.end(), std::int64_t{0});
    DeviceRequest request;
    request.simulate = {SimulatedDevice{}};
    device_ = bind_device(request);
    replica_ = std::make_unique<Replica>(configuration_, *data_, *device_);
    runner_.emplace(choose_runner(configuration_, *replica_));
  }

  double seconds(const std::vector<MicroBatchRun>& runs) {
    replica_->gradients.begin_step();
    const comm::Stopwatch watch;
    accumulate_gradient(*runner_, *data_, samples_, runs, 0);
    return watch.seconds();
  }

  double forward_seconds() {
    const at::NoGradGuard no_grad;
    const comm::Stopwatch watch;
    for (std::size_t begin = 0; begin < samples_.size(); begin += k_micro_batch) {
      const auto part = std::span<const std::int64_t>(samples_).subspan(begin, k_micro_batch);
      const Batch batch = data_->gather(part, at::kFloat);
      const at::Tensor loss =
          replica_->loss.sum(replica_->model->forward(batch.inputs[0], {1, 0, part}), batch.targets);
    }
    return watch.seconds();
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
  MicroBatchRunner& runner() { return *runner_; }

 private:
  Configuration configuration_;
  std::unique_ptr<Dataset> data_;
  std::vector<std::int64_t> samples_;
  std::unique_ptr<ComputeDevice> device_;
  std::unique_ptr<Replica> replica_;
  std::optional<MicroBatchRunner> runner_;
};

void print_title(const Share& share) {
  std::printf("ResNet-18, 3x%ldx%ld, %ld samples in micro-batches of %ld\n", static_cast<long>(share.size),
              static_cast<long>(share.size), static_cast<long>(share.samples), static_cast<long>(k_micro_batch));
}

void compare_times(const Share& share, int rounds) {
  Trainee plain(BatchNormMode::local, share);
  Trainee exact(BatchNormMode::exact, share);
  std::vector<double> over_plain;
  std::vector<double> over_floor;
  for (int round = -1; round < rounds; ++round) {
    const double accumulation = plain.seconds(share.accumulated());
    const double ours = exact.seconds(share.accumulated());
    const double floor = accumulation + plain.forward_seconds();
    if (round < 0) continue;  // captures, and warms up
    over_plain.push_back(ours / accumulation);
    over_floor.push_back(ours / floor);
  }
  print_title(share);
  std::printf("  time over plain accumulation %.3f, over accumulation and one more forward %.3f, median of %d rounds\n",
              comm::median(over_plain), comm::median(over_floor), rounds);
}

void compare_memory(const Share& share) {
  Trainee plain(BatchNormMode::local, share);
  Trainee exact(BatchNormMode::exact, share);
  const double one_batch = plain.peak_bytes(share.whole());
  const double plain_peak = plain.peak_bytes(share.accumulated());
  const double kept = exact.peak_bytes(share.accumulated());
  exact.runner().apart()->keep_in(SavedPlace::host);
  const double in_host = exact.peak_bytes(share.accumulated());
  print_title(share);
  std::printf(
      "  peak memory over one batch of the same share %.2f; over plain accumulation's %.2f, with what it keeps in host "
      "memory %.2f\n",
      kept / one_batch, kept / plain_peak, in_host / plain_peak);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  for (const std::int64_t size : {32, 64}) {
    compare_times({size, 64}, rounds);
    for (const std::int64_t samples : {64, 256}) compare_memory({size, samples});
  }
}
