// What one rank computes on: the CPU, a device that the CPU simulates, or a CUDA GPU. One interface for memory and
// time.
#pragma once

#include "trainer/base/configuration.hpp"
#include "trainer/base/plan.hpp"
#include "trainer/device/device_graph.hpp"
#include "trainer/device/topology.hpp"

#include <c10/core/Device.h>

#include <exception>
#include <memory>
#include <string>

namespace onebatch {

/// A point in the work that was put on a device's current stream.
class DeviceMoment {
 public:
  DeviceMoment() = default;
  DeviceMoment(const DeviceMoment&) = delete;
  DeviceMoment& operator=(const DeviceMoment&) = delete;
  virtual ~DeviceMoment() = default;

  /// Since an earlier one of the same device, once the device has come to this one: whoever has read a number that was
  /// made after it knows that it has.
  [[nodiscard]] virtual double seconds_since(const DeviceMoment& earlier) const = 0;
};

class ComputeDevice {
 public:
  ComputeDevice() = default;
  ComputeDevice(const ComputeDevice&) = delete;
  ComputeDevice& operator=(const ComputeDevice&) = delete;
  virtual ~ComputeDevice() = default;

  [[nodiscard]] virtual c10::Device device() const = 0;
  /// As reports show it: "NVIDIA GeForce RTX 3090", "cpu", "CPU simulating 256 MiB, 2.5x slower".
  [[nodiscard]] virtual std::string name() const = 0;

  /// Of a CUDA GPU, "9.0"; empty for a CPU.
  [[nodiscard]] virtual std::string compute_capability() const { return {}; }
  /// Where a GPU is on the bus ("0000:3b:00.0"); empty for a CPU.
  [[nodiscard]] virtual std::string pci_bus_id() const { return {}; }
  [[nodiscard]] virtual std::int64_t memory_limit_bytes() const = 0;
  /// The least that its allocator takes at once; 0 = it counts bytes.
  [[nodiscard]] virtual std::int64_t block_bytes() const { return 0; }
  [[nodiscard]] virtual std::int64_t current_bytes() const = 0;
  [[nodiscard]] virtual std::int64_t peak_bytes() const = 0;
  virtual void reset_peak() = 0;
  /// Gives cached blocks back. Call it outside the `catch` of an out-of-memory error: the exception keeps tensors
  /// alive.
  virtual void empty_cache() = 0;
  /// Counts memory that this rank uses but the device's allocator did not give; with a negative number it is given
  /// back. May throw an out-of-memory error.
  virtual void charge(std::int64_t /*bytes*/) {}
  /// Waits until the work that was put on the current stream is done.
  virtual void synchronize() = 0;
  /// Where its work has come to when it has done what was put on the current stream until now. Waits for nothing.
  virtual std::shared_ptr<const DeviceMoment> mark();
  /// The calling thread's stream (cudaStream_t); none on a CPU.
  [[nodiscard]] virtual void* current_stream() const { return nullptr; }
  /// What records graphs of work on it; null where nothing does.
  virtual std::unique_ptr<DeviceGraphs> create_graphs() { return nullptr; }
  /// Called as an optimizer step begins, counted from 1: a simulated device may change with it.
  virtual void begin_step(std::int64_t /*step*/) {}
  /// A simulated device's slowness: waits as long as the device would have needed beyond `compute_seconds`, in which
  /// these micro-batches were completed.
  virtual void pace(double /*compute_seconds*/, const std::vector<MicroBatchRun>& /*completed*/) {}
};

struct DeviceRequest {
  DeviceChoice choice = DeviceChoice::automatic;
  int rank = 0;
  int node_local_rank = 0;
  int node_local_size = 1;
  bool allow_shared_device = false;
  std::vector<std::vector<std::string>> gpus_of_ranks = {};  // visible_gpus() of every rank; empty: there is one rank
  std::vector<SimulatedDevice> simulate;
  std::string allocator_settings = {};  // of a CUDA GPU's: see trainer/device/allocator_settings.hpp
};

/// Binds this rank to its device and sets its memory limit. Throws UserError or comm::LaunchError with what to do
/// instead.
std::unique_ptr<ComputeDevice> bind_device(const DeviceRequest& request);

/// Number of CUDA GPUs that this process sees; 0 without CUDA.
[[nodiscard]] int cuda_device_count();
/// What identifies them wherever they are seen, in this process's order; empty without CUDA.
[[nodiscard]] std::vector<std::string> visible_gpus();
/// Whether there is a CUDA driver, and it is older than LibTorch needs: then no GPU is counted.
[[nodiscard]] bool has_cuda_driver_too_old();
/// "NVIDIA GeForce RTX 3090, 24576 MiB, PCI 0000:3b:00.0, near processors 0-7", for each of them.
[[nodiscard]] std::vector<std::string> describe_cuda_devices(const Topology& topology);
/// Built in device_cuda.cpp or, without CUDA, in no_cuda.cpp, which throws UserError and says how to get it.
std::unique_ptr<ComputeDevice> bind_cuda_device(const DeviceRequest& request);

/// Whether an error means "does not fit" (Note [Only out-of-memory means does not fit]): LibTorch's type, or cuDNN's,
/// cuBLAS' and NCCL's own words for it.
[[nodiscard]] bool is_out_of_memory(const std::exception& error);

/// Bytes of host memory that can be had now (/proc/meminfo's MemAvailable, or the cgroup's limit if that is less).
[[nodiscard]] std::int64_t available_host_memory_bytes();

}  // namespace onebatch
