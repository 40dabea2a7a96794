#include "trainer/run/reduce_trial.hpp"

#include "comm/error.hpp"
#include "comm/stopwatch.hpp"
#include "comm/watchdog.hpp"
#include "trainer/device/agreement.hpp"
#include "trainer/run/communication.hpp"
#include "trainer/run/opened_run.hpp"

#include <ATen/ops/full.h>

#include <algorithm>

namespace onebatch {
namespace {

constexpr int k_times = 5;

// All ranks see the same lists and so come to the same answer.
std::string why_not_one_each(const std::vector<std::vector<std::string>>& gpus) {
  try {
    for (std::size_t rank = 0; rank < gpus.size(); ++rank)
      std::ignore = comm::choose_cuda_device(static_cast<int>(rank), gpus, comm::SharedGpus::refused);
    return {};
  } catch (const comm::LaunchError& error) {
    return error.what();
  }
}

bool any_gpu(const std::vector<std::vector<std::string>>& gpus) {
  return std::ranges::any_of(gpus, [](const auto& seen) { return !seen.empty(); });
}

}  // namespace

ReduceTrial try_reduction(comm::World& world, std::int64_t bytes) {
  Configuration configuration;
  configuration.comm.timeout_seconds = world.watchdog().timeout_seconds();
  const auto gpus = gpus_of_ranks(configuration, world.control());
  ReduceTrial trial;
  trial.bytes = bytes;
  if (any_gpu(gpus)) trial.why_not_gpus = why_not_one_each(gpus);
  if (!any_gpu(gpus) || !trial.why_not_gpus.empty()) configuration.run.device = DeviceChoice::cpu;
  std::unique_ptr<ComputeDevice> device;
  agree(world.control(), [&] {
    device = bind_device({.choice = configuration.run.device,
                          .rank = world.rank(),
                          .node_local_rank = world.node_local_rank(),
                          .node_local_size = world.node_local_size(),
                          .gpus_of_ranks = gpus,
                          .simulate = {}});
  });
  trial.device = device->name();
  EventStream events(world.rank(), {}, Fallbacks::said);
  Communication communication(configuration, *device, world, events);
  const std::int64_t count = bytes / static_cast<std::int64_t>(sizeof(float));
  const float sum = static_cast<float>(world.size() * (world.size() + 1) / 2);
  const at::Tensor own = at::full({count}, world.rank() + 1, at::kFloat);
  std::vector<double> seconds;
  trial.right = true;
  for (int time = 0; time < k_times; ++time) {
    const at::Tensor values = own.to(device->device(), at::kFloat, false, true);
    device->synchronize();
    const comm::Stopwatch watch;
    communication.queue().post([&] {
      communication.carrier().all_reduce(values.data_ptr(), static_cast<std::size_t>(count), comm::ScalarType::float32,
                                         comm::ReduceOp::sum);
    });
    communication.queue().wait();
    device->synchronize();
    seconds.push_back(watch.seconds());
    trial.right = trial.right && values.cpu().eq(sum).all().item<bool>();
  }
  std::ranges::nth_element(seconds, seconds.begin() + k_times / 2);
  trial.seconds = seconds[k_times / 2];
  trial.carrier = std::string(communication.carrier().backend());
  communication.close();
  return trial;
}

}  // namespace onebatch
