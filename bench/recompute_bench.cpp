// What recomputation costs and saves on a TorchScript model: against the same micro-batch with its activations kept,
// interleaved.
//   recompute_bench MODEL.pt SAMPLES ROUNDS SHAPE... ; bench/recompute.py makes the models and calls it.
#include "comm/statistics.hpp"
#include "comm/stopwatch.hpp"
#include "trainer/step/accumulation.hpp"
#include "trainer/step/graph_step.hpp"

#include <cstdio>
#include <cstdlib>
#include <numeric>

namespace {

using namespace onebatch;

Configuration configuration_of(const char* path, const std::vector<std::int64_t>& shape, std::int64_t samples) {
  Configuration c;
  c.data.train.kind = "synthetic";
  c.data.train.shape = shape;
  c.data.train.size = samples;
  c.model.kind = "torchscript";
  c.model.path = path;
  c.batch.global_batch_size = samples;
  c.optimizer.kind = "sgd";
  return c;
}

class Trainee {
 public:
  Trainee(const Configuration& configuration, std::int64_t samples)
      : data_(open_dataset(configuration.data.train, Split::train, 1)), samples_(static_cast<std::size_t>(samples)) {
    std::iota(samples_.begin(), samples_.end(), std::int64_t{0});
    DeviceRequest request;
    request.simulate = {SimulatedDevice{}};
    device_ = bind_device(request);
    replica_ = std::make_unique<Replica>(configuration, *data_, *device_);
    runner_.emplace(choose_runner(configuration, *replica_));
  }

  // Above what is held between steps, in `peak`.
  double seconds(double& peak) {
    replica_->gradients.begin_step();
    device_->reset_peak();
    const auto held = device_->current_bytes();
    const comm::Stopwatch watch;
    accumulate_gradient(*runner_, *data_, samples_, {{static_cast<std::int64_t>(samples_.size()), 1}}, 0);
    const double taken = watch.seconds();
    peak = static_cast<double>(device_->peak_bytes() - held);
    return taken;
  }

  Replica& replica() { return *replica_; }
  MicroBatchRunner& runner() { return *runner_; }

 private:
  std::unique_ptr<Dataset> data_;
  std::vector<std::int64_t> samples_;
  std::unique_ptr<ComputeDevice> device_;
  std::unique_ptr<Replica> replica_;
  std::optional<MicroBatchRunner> runner_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "recompute_bench MODEL.pt SAMPLES ROUNDS SHAPE...\n");
    return 2;
  }
  const std::int64_t samples = std::atoll(argv[2]);
  const int rounds = std::atoi(argv[3]);
  std::vector<std::int64_t> shape;
  for (int i = 4; i < argc; ++i) shape.push_back(std::atoll(argv[i]));
  const Configuration configuration = configuration_of(argv[1], shape, samples);
  Trainee kept(configuration, samples);
  Trainee again(configuration, samples);
  recompute(again.runner());
  std::vector<double> ratios;
  double kept_peak = 0.0;
  double again_peak = 0.0;
  bool same = true;
  for (int round = -1; round < rounds; ++round) {
    const double plain = kept.seconds(kept_peak);
    const double ours = again.seconds(again_peak);
    same = same && kept.replica().gradients.flat().equal(again.replica().gradients.flat());
    if (round >= 0) ratios.push_back(ours / plain);  // the first captures
  }
  std::printf("%s: gradients %s, peak memory %.2f of %.0f MiB, time %.2f (median of %d)\n", argv[1],
              same ? "bit-identical" : "DIFFERENT", again_peak / kept_peak, kept_peak / 1048576.0, comm::median(ratios),
              rounds);
  return same ? 0 : 1;
}
