// One rank: this trainer's step against the same step written by hand in LibTorch, interleaved, on the same weights and
// samples.
//   loop_bench [STEPS] prints the median ratio of the two for an MLP and a ResNet.
#include "comm/local_communicator.hpp"
#include "comm/statistics.hpp"
#include "comm/stopwatch.hpp"
#include "trainer/data/dataset.hpp"
#include "trainer/data/sample_order.hpp"
#include "trainer/device/compute_device.hpp"
#include "trainer/events/step_writer.hpp"
#include "trainer/gradients/reducer.hpp"
#include "trainer/step/step.hpp"

#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

namespace {

using namespace onebatch;

Configuration configuration_of(const std::string& kind) {
  Configuration c;
  c.data.train.kind = "synthetic";
  c.data.train.shape = kind == "mlp" ? std::vector<std::int64_t>{784} : std::vector<std::int64_t>{3, 32, 32};
  c.data.train.size = 2048;
  c.model.kind = kind;
  c.model.depth = 8;
  c.model.stem = ResNetStem::cifar;
  c.batch.global_batch_size = kind == "mlp" ? 256 : 64;
  return c;
}

// What a user would write: the library's own model, PyTorch's loss and optimizer, no accumulation.
class ByHand {
 public:
  ByHand(const Configuration& c, const Dataset& data)
      : data_(data),
        model_(make_model_for(c, data, c10::Device(c10::kCPU), at::kFloat)),
        optimizer_(tensors(), torch::optim::AdamWOptions(c.optimizer.lr).weight_decay(0.0)) {}

  void step(const std::vector<std::int64_t>& samples) {
    const Batch batch = data_.gather(samples, at::kFloat);
    optimizer_.zero_grad();
    const at::Tensor loss =
        torch::nn::functional::cross_entropy(model_->forward(batch.inputs[0], {1, 0, samples}), batch.targets);
    loss.backward();
    optimizer_.step();
    last_loss_ = loss.item<double>();
  }

 private:
  std::vector<at::Tensor> tensors() const {
    std::vector<at::Tensor> all;
    for (const auto& parameter : model_->parameters()) all.push_back(parameter.tensor);
    return all;
  }

  const Dataset& data_;
  std::unique_ptr<Model> model_;
  torch::optim::AdamW optimizer_;
  double last_loss_ = 0.0;
};

double seconds_of(const std::function<void()>& work) {
  const comm::Stopwatch watch;
  work();
  return watch.seconds();
}

void compare(const char* name, const std::string& kind, int steps) {
  const Configuration c = configuration_of(kind);
  const auto data = open_dataset(c.data.train, Split::train, 1);
  const auto device = bind_device({});
  Replica replica(c, *data, *device);
  const MicroBatchRunner runner(replica);
  comm::LocalCommunicator alone;
  comm::CollectiveQueue queue(comm::CollectiveQueue::Thread::callers);
  GradientReducer reducer(alone, queue, replica.gradients, *device, {});
  TrainingStep step(runner, *data, reducer, alone, Clipping());
  const auto metrics = std::filesystem::temp_directory_path() / "onebatch-loop-bench.jsonl";
  StepWriter writer(metrics, "", 0);
  Plan plan;
  plan.global_batch_size = c.batch.global_batch_size;
  plan.ranks = {{0, "cpu", plan.global_batch_size, {{plan.global_batch_size, 1}}, {}, 0.0, 0.0}};
  ByHand by_hand(c, *data);
  SampleOrder order(1, data->size(), plan.global_batch_size, LastBatch::drop);
  std::vector<double> ours, theirs, ratios;
  for (int i = -5; i < steps; ++i) {
    const auto samples = order.next();
    const double a = seconds_of([&] {
      const StepTotals totals = step.run({.global_batch = samples, .plan = plan, .lr = c.optimizer.lr, .step = i});
      StepRecord record;
      record.step = i;
      record.loss = totals.loss_sum / totals.weight;
      writer.write(record, 0.0);
    });
    const double b = seconds_of([&] { by_hand.step(samples); });
    if (i < 0) continue;
    ours.push_back(a);
    theirs.push_back(b);
    ratios.push_back(a / b);
  }
  std::filesystem::remove(metrics);
  std::printf("%s, %zu steps: ours %.3f ms, by hand %.3f ms (medians); median ratio %.3f\n", name, ratios.size(),
              comm::median(ours) * 1e3, comm::median(theirs) * 1e3, comm::median(ratios));
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 200;
  at::set_num_threads(1);
  compare("MLP 784-512-512-10 at 256", "mlp", steps);
  compare("ResNet-8 3x32x32 at 64", "resnet", steps);
  return 0;
}
