#include "trainer/device/compute_device.hpp"

#include "comm/stopwatch.hpp"
#include "comm/wait_policy.hpp"
#include "trainer/base/error.hpp"
#include "trainer/device/memory_budget.hpp"
#include "trainer/device/out_of_memory.hpp"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <fstream>
#include <new>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

namespace onebatch {
namespace {

// Of the memory that a rank may have on the host: the rest is for the data set, libraries' own buffers and everyone
// else.
constexpr double k_host_memory_share = 0.8;

// Of a device that has done all that it was given when the call returns.
class HostMoment final : public DeviceMoment {
 public:
  [[nodiscard]] double seconds_since(const DeviceMoment& earlier) const override {
    return std::chrono::duration<double>(at_ - dynamic_cast<const HostMoment&>(earlier).at_).count();
  }

 private:
  std::chrono::steady_clock::time_point at_ = std::chrono::steady_clock::now();
};

class CpuDevice final : public ComputeDevice {
 public:
  CpuDevice(std::int64_t limit_bytes, SimulatedDevice simulated, std::string name)
      : budget_(MemoryBudget::install()),
        slowdown_(simulated.slowdown),
        simulated_(std::move(simulated)),
        name_(std::move(name)) {
    budget_.set_limit_bytes(limit_bytes);
    if (!simulated_.step_seconds.empty()) table_.emplace(simulated_.step_seconds);
  }

  c10::Device device() const override { return c10::Device(c10::kCPU); }
  std::string name() const override { return name_; }
  std::int64_t memory_limit_bytes() const override { return budget_.limit_bytes(); }
  std::int64_t current_bytes() const override { return budget_.current_bytes(); }
  std::int64_t peak_bytes() const override { return budget_.peak_bytes(); }
  void reset_peak() override { budget_.reset_peak(); }
  void empty_cache() override { MemoryBudget::release_freed_pages(); }
  void charge(std::int64_t bytes) override { budget_.charge(bytes); }
  void synchronize() override {}
  void begin_step(std::int64_t step) override {
    for (const DeviceChange& change : simulated_.changes) {
      if (change.step > step) continue;
      slowdown_ = change.slowdown.value_or(slowdown_);
      if (change.memory_bytes) budget_.set_limit_bytes(*change.memory_bytes);
    }
  }
  // Awake, so that what follows is not slowed by a core that was given to others; to them on this machine it yields.
  void pace(double compute_seconds, const std::vector<MicroBatchRun>& completed) override {
    const comm::Stopwatch watch;
    const double rest = slowdown_ * (compute_seconds + owed(compute_seconds, completed)) - compute_seconds;
    if (comm::waits_passively() && rest > 0.0) std::this_thread::sleep_for(std::chrono::duration<double>(rest));
    while (watch.seconds() < rest) std::this_thread::yield();
  }

 private:
  // What the device's own times ask for beyond all that has been computed for these micro-batches.
  double owed(double compute_seconds, const std::vector<MicroBatchRun>& completed) {
    if (!table_) return 0.0;
    computed_seconds_ += compute_seconds;
    if (completed.empty()) return 0.0;
    double seconds = 0.0;
    for (const MicroBatchRun& run : completed) seconds += table_->seconds(run.size) * static_cast<double>(run.count);
    return std::max(0.0, seconds - std::exchange(computed_seconds_, 0.0));
  }

  MemoryBudget& budget_;
  double slowdown_;
  SimulatedDevice simulated_;
  std::optional<CostTable> table_;
  double computed_seconds_ = 0.0;  // since micro-batches were completed
  std::string name_;
};

std::string memory_of(const SimulatedDevice& simulated) {
  constexpr std::int64_t k_mebibyte = std::int64_t{1} << 20;
  if (simulated.memory_bytes == 0) return "any memory";
  return simulated.memory_bytes < k_mebibyte
             ? fmt::format("{:.4g} KiB", static_cast<double>(simulated.memory_bytes) / 1024.0)
             : fmt::format("{} MiB", simulated.memory_bytes / k_mebibyte);
}

std::string pace_of(const SimulatedDevice& simulated) {
  if (simulated.slowdown == 1.0) return "";
  return simulated.slowdown > 1.0 ? fmt::format(", {:g}x slower", simulated.slowdown)
                                  : fmt::format(", {:g}x the time", simulated.slowdown);
}

std::unique_ptr<ComputeDevice> bind_simulated_device(const DeviceRequest& request) {
  const auto rank = static_cast<std::size_t>(request.rank);
  if (rank >= request.simulate.size())
    throw UserError(fmt::format(
        "rank {0} has no device to play: simulate.devices lists {1}; add devices or start fewer ranks (mpirun -np {1})",
        rank, request.simulate.size()));
  const SimulatedDevice& simulated = request.simulate[rank];
  const std::int64_t limit = simulated.memory_bytes > 0 ? simulated.memory_bytes : MemoryBudget::k_no_limit;
  const char* times = simulated.step_seconds.empty() ? "" : " by given times";
  return std::make_unique<CpuDevice>(
      limit, simulated, fmt::format("CPU simulating {}{}{}", memory_of(simulated), times, pace_of(simulated)));
}

std::unique_ptr<ComputeDevice> bind_cpu(const DeviceRequest& request) {
  const double share = k_host_memory_share / std::max(1, request.node_local_size);
  return std::make_unique<CpuDevice>(
      static_cast<std::int64_t>(share * static_cast<double>(available_host_memory_bytes())), SimulatedDevice(), "cpu");
}

// The process's device: where it is a GPU, the host's memory is another.
std::atomic<bool> a_gpu_is_bound = false;

std::int64_t read_number(const char* file) {
  std::ifstream in(file);
  std::int64_t value = 0;
  return (in >> value) ? value : INT64_MAX;  // "max" and a missing file mean no limit
}

// A file's pages that nobody needs are given up before anything else fails.
std::int64_t used_by_the_container() {
  const std::int64_t used = read_number("/sys/fs/cgroup/memory.current");
  std::ifstream in("/sys/fs/cgroup/memory.stat");
  std::string name;
  for (std::int64_t bytes = 0; in >> name >> bytes;) {
    if (name == "inactive_file") return used - std::min(used, bytes);
  }
  return used;
}

}  // namespace

std::shared_ptr<const DeviceMoment> ComputeDevice::mark() {
  return std::make_shared<HostMoment>();
}

std::unique_ptr<ComputeDevice> bind_device(const DeviceRequest& request) {
  if (!request.simulate.empty()) return bind_simulated_device(request);
  const bool want_cuda =
      request.choice == DeviceChoice::cuda ||
      (request.choice == DeviceChoice::automatic && (cuda_device_count() > 0 || has_cuda_driver_too_old()));
  a_gpu_is_bound = want_cuda;
  return want_cuda ? bind_cuda_device(request) : bind_cpu(request);
}

bool is_out_of_host_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return true;
  const std::string_view text = error.what();
  // TorchScript's interpreter makes a runtime_error of what an operator throws: then the budget's own words stand in
  // it.
  const std::string refusal = MemoryBudget::last_refusal();
  if (!refusal.empty() && text.find(refusal) != std::string_view::npos) return true;
  return text.find("DefaultCPUAllocator: can't allocate memory") != std::string_view::npos;
}

bool is_out_of_memory(const std::exception& error) {
  if (is_out_of_host_memory(error)) return !a_gpu_is_bound;
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return true;
  // Libraries that allocate past LibTorch's allocator have no type for it, only words.
  constexpr std::array<std::string_view, 6> k_words = {"CUDA out of memory",
                                                       "CUDA error: out of memory",
                                                       "CUBLAS_STATUS_ALLOC_FAILED",
                                                       "CUDNN_STATUS_ALLOC_FAILED",
                                                       "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
                                                       "Cuda failure 2 'out of memory'"};
  const std::string_view text = error.what();
  // cuDNN's engines are tried one after the other, and that the allocator had no room for any is not said.
  constexpr std::string_view k_no_engine = "unable to find an engine to execute this computation";
  if (text.find(k_no_engine) != std::string_view::npos && num_cuda_refusals() > 0) return true;
  return std::any_of(k_words.begin(), k_words.end(),
                     [&](std::string_view word) { return text.find(word) != std::string_view::npos; });
}

std::int64_t available_host_memory_bytes() {
  std::ifstream meminfo("/proc/meminfo");
  std::int64_t available = INT64_MAX;
  for (std::string line; std::getline(meminfo, line);) {
    if (line.starts_with("MemAvailable:")) available = std::stoll(line.substr(13)) * 1024;
  }
  const std::int64_t limit = read_number("/sys/fs/cgroup/memory.max");
  if (limit != INT64_MAX) available = std::min(available, limit - std::min(limit, used_by_the_container()));
  return available;
}

}  // namespace onebatch
