// A CUDA GPU as a compute device: LibTorch's caching allocator with a memory fraction, so that no driver spills to host
// memory in silence.
#include "comm/world.hpp"
#include "trainer/base/error.hpp"
#include "trainer/device/compute_device.hpp"
#include "trainer/device/cuda_graphs.hpp"
#include "trainer/device/out_of_memory.hpp"

#include <ATen/ops/ones.h>
#include <c10/cuda/CUDAAllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace onebatch {
namespace {

// Kept free for CUDA's context, libraries' workspaces that bypass the allocator, and the display.
constexpr double k_usable_fraction = 0.95;

constexpr int k_older_cuda = 12;  // of the older LibTorch that ./dev builds with, whose kernels serve Maxwell to Hopper
constexpr std::string_view k_older_build = "./dev build --cuda --libtorch 2.7.1";
constexpr std::string_view k_build = "./dev build --cuda";
// Major compute capabilities: a card without kernels is older or newer than those that both builds serve.
constexpr int k_first_of_older = 5;
constexpr int k_first_of_both = 8;

std::string bus_id(int index) {
  std::array<char, 32> text{};
  return cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), index) == cudaSuccess ? text.data() : "";
}

// CUDA writes 12.4 as 12040.
std::string cuda_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string libtorch_text() {
  return "LibTorch " TORCH_VERSION " for CUDA " + cuda_text(CUDART_VERSION);
}

// Empty where there is no driver at all, or one that is new enough.
std::string why_the_driver_does_not_do() {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0 || driver / 1000 >= CUDART_VERSION / 1000) return "";
  return fmt::format(
      "the NVIDIA driver serves CUDA up to {}, and this program is built with {}: update the driver, or build with "
      "LIBTORCH_ROOT set to a LibTorch for CUDA {}{}",
      cuda_text(driver), libtorch_text(), driver / 1000,
      driver / 1000 == k_older_cuda ? fmt::format(" (`{}` does)", k_older_build) : "");
}

// What to do about a card that the LibTorch of this build has no kernels for.
std::string mend_of(const cudaDeviceProp& card) {
  if (card.major < k_first_of_older)
    return "no LibTorch that ./dev builds with has any (docs/building.md says which serves which card), so write "
           "run.device = \"cpu\"";
  return fmt::format(
      "build with one that has them (`{}`; docs/building.md says which serves which card), or write run.device = "
      "\"cpu\"",
      card.major < k_first_of_both ? k_older_build : k_build);
}

// A card may be too old for LibTorch's kernels: the first one that is launched shows it.
void try_a_kernel(const cudaDeviceProp& properties, c10::Device device) {
  constexpr std::string_view k_cudas_words = "no kernel image is available";
  try {
    at::ones({1}, device).add_(1.0);
    c10::cuda::getCurrentCUDAStream(device.index()).synchronize();
    c10::cuda::CUDACachingAllocator::emptyCache();
  } catch (const c10::Error& error) {
    if (std::string_view(error.what_without_backtrace()).find(k_cudas_words) == std::string_view::npos) throw;
    throw UserError(fmt::format("{} has compute capability {}.{}, for which {} has no kernels: {}",
                                std::string_view(properties.name), properties.major, properties.minor, libtorch_text(),
                                mend_of(properties)));
  }
}

// An event, with the time at which the stream has come to it.
class CudaMoment final : public DeviceMoment {
 public:
  explicit CudaMoment(cudaStream_t stream) {
    C10_CUDA_CHECK(cudaEventCreate(&event_));
    const cudaError_t recorded = cudaEventRecord(event_, stream);
    if (recorded != cudaSuccess) cudaEventDestroy(event_);
    C10_CUDA_CHECK(recorded);
  }
  ~CudaMoment() override { cudaEventDestroy(event_); }
  CudaMoment(const CudaMoment&) = delete;
  CudaMoment& operator=(const CudaMoment&) = delete;

  [[nodiscard]] double seconds_since(const DeviceMoment& earlier) const override {
    float milliseconds = 0.0F;
    C10_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, dynamic_cast<const CudaMoment&>(earlier).event_, event_));
    return milliseconds * 1e-3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaDevice final : public ComputeDevice {
 public:
  CudaDevice(int index, double fraction, const std::string& allocator_settings)
      : index_(static_cast<c10::DeviceIndex>(index)) {
    c10::cuda::set_device(index_);
    cudaDeviceProp properties{};
    C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
    name_ = properties.name;
    capability_ = fmt::format("{}.{}", properties.major, properties.minor);
    if (!allocator_settings.empty()) c10::cuda::CUDACachingAllocator::setAllocatorSettings(allocator_settings);
    c10::cuda::CUDACachingAllocator::init(c10::cuda::device_count());
    try_a_kernel(properties, device());
    fraction_before_ = memory_fraction(*c10::cuda::CUDACachingAllocator::get(), index_);
    // What another program holds is not there to be planned with. What this one holds is: it counts against the limit.
    std::size_t free_bytes = properties.totalGlobalMem;
    std::size_t total_bytes = properties.totalGlobalMem;
    C10_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    const double there = static_cast<double>(free_bytes) + static_cast<double>(reserved().current);
    fraction = std::min(fraction, k_usable_fraction * there / static_cast<double>(total_bytes));
    limit_ = static_cast<std::int64_t>(fraction * static_cast<double>(total_bytes));
    c10::cuda::CUDACachingAllocator::setMemoryFraction(fraction, index_);
  }
  // A library user's process goes on.
  ~CudaDevice() override {
    try {
      c10::cuda::CUDACachingAllocator::setMemoryFraction(fraction_before_, index_);
    } catch (const std::exception&) {  // of a device that has failed
    }
  }

  c10::Device device() const override { return c10::Device(c10::kCUDA, index_); }
  std::string name() const override { return name_; }
  std::string compute_capability() const override { return capability_; }
  std::string pci_bus_id() const override { return bus_id(index_); }
  std::int64_t memory_limit_bytes() const override { return limit_; }
  // Between 1 and 10 MiB; smaller ones take 2, larger ones what they need.
  std::int64_t block_bytes() const override { return std::int64_t{20} << 20; }
  // Reserved, not allocated: what the allocator holds from the driver is what runs out, fragmentation included.
  std::int64_t current_bytes() const override { return reserved().current; }
  std::int64_t peak_bytes() const override { return reserved().peak; }
  void reset_peak() override {
    c10::cuda::CUDACachingAllocator::resetPeakStats(index_);
    // How often it has refused: see num_cuda_refusals().
    c10::cuda::CUDACachingAllocator::resetAccumulatedStats(index_);
  }
  void empty_cache() override { c10::cuda::CUDACachingAllocator::emptyCache(); }
  void synchronize() override { c10::cuda::getCurrentCUDAStream(index_).synchronize(); }
  std::shared_ptr<const DeviceMoment> mark() override {
    return std::make_shared<CudaMoment>(c10::cuda::getCurrentCUDAStream(index_).stream());
  }
  void* current_stream() const override { return c10::cuda::getCurrentCUDAStream(index_).stream(); }
  std::unique_ptr<DeviceGraphs> create_graphs() override { return create_cuda_graphs(device()); }

 private:
  using Statistic = c10::CachingAllocator::Stat;
  Statistic reserved() const {
    return c10::cuda::CUDACachingAllocator::getDeviceStats(index_)
        .reserved_bytes[static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
  }

  // Older LibTorch does not tell it: then it is taken to be all.
  template <typename Allocator>
  static double memory_fraction(Allocator& allocator, c10::DeviceIndex index) {
    if constexpr (requires { allocator.getMemoryFraction(index); })
      return allocator.getMemoryFraction(index);
    else
      return 1.0;
  }

  c10::DeviceIndex index_;
  double fraction_before_ = 1.0;
  std::int64_t limit_ = 0;
  std::string name_;
  std::string capability_;
};

// What stands in for CUDA's libraries where they were missing when this program was linked says so; the null GPU, which
// is loaded before them, says nothing under the same name.
bool is_linked_with_stand_ins() {
  const auto* const words = static_cast<const char*>(dlsym(RTLD_DEFAULT, "onebatch_cuda_stand_in"));
  return words != nullptr && *words != '\0';
}

}  // namespace

int cuda_device_count() {
  return c10::cuda::device_count();
}

std::int64_t num_cuda_refusals() {
  return c10::cuda::CUDACachingAllocator::getDeviceStats(c10::cuda::current_device()).num_ooms;
}

std::vector<std::string> visible_gpus() {
  std::vector<std::string> gpus;
  for (int index = 0; index < cuda_device_count(); ++index) {
    cudaDeviceProp properties{};
    C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
    std::string text;
    for (const char byte : properties.uuid.bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    gpus.push_back(std::move(text));
  }
  return gpus;
}

bool has_cuda_driver_too_old() {
  return cuda_device_count() == 0 && !why_the_driver_does_not_do().empty();
}

std::vector<std::string> describe_cuda_devices(const Topology& topology) {
  std::vector<std::string> lines;
  for (int index = 0; index < cuda_device_count(); ++index) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, index) != cudaSuccess) continue;
    const std::string id = bus_id(index);
    lines.push_back(fmt::format("{}, {} MiB, PCI {}, near processors {}", std::string_view(properties.name),
                                properties.totalGlobalMem >> 20, id, processor_list(topology.processors_near(id))));
  }
  return lines;
}

std::unique_ptr<ComputeDevice> bind_cuda_device(const DeviceRequest& request) {
  if (is_linked_with_stand_ins())
    throw UserError(
        "run.device = \"cuda\", but this program was linked with stand-ins for CUDA's libraries, which compute "
        "nothing: it is for the null GPU of its tests. Build it where those libraries are (./dev build --cuda), or "
        "write run.device = \"cpu\"");
  const int visible = cuda_device_count();
  if (const std::string why = why_the_driver_does_not_do(); visible == 0 && !why.empty())
    throw UserError(why + ", or write run.device = \"cpu\"");
  if (visible == 0)
    throw UserError(
        "run.device = \"cuda\", but no CUDA GPU is visible here: see nvidia-smi and CUDA_VISIBLE_DEVICES, or write "
        "run.device = \"cpu\"");
  std::vector<std::vector<std::string>> gpus = request.gpus_of_ranks;
  const int rank = gpus.empty() ? 0 : request.rank;
  if (gpus.empty()) gpus.push_back(visible_gpus());
  const auto [index, sharing] = comm::choose_cuda_device(
      rank, gpus, request.allow_shared_device ? comm::SharedGpus::allowed : comm::SharedGpus::refused);
  return std::make_unique<CudaDevice>(index, k_usable_fraction / sharing, request.allocator_settings);
}

}  // namespace onebatch
