#include "trainer/device/device_noise.hpp"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <limits>
#include <numeric>
#include <stdexcept>

namespace onebatch {

// trainer/device/noise_kernel.cu, put into a string by the build.
extern const char* const k_noise_kernel;

namespace {

constexpr std::size_t k_most_dimensions = 8;
constexpr unsigned k_threads_of_a_row = 32;
constexpr unsigned k_rows_of_a_block = 8;
constexpr std::int64_t k_elements_of_a_thread = 16;
constexpr std::int64_t k_most_blocks = 1 << 16;
constexpr std::int64_t k_enough_blocks = 4096;

// As the kernel has it.
struct Rows {
  unsigned count;
  unsigned dimensions;
  std::array<unsigned, k_most_dimensions> stride;
  unsigned long long width;
};

std::int64_t width_of(const NoiseOrder& order) {
  return order.of_sample.empty() ? 1 : order.of_sample.back();
}

std::int64_t rows_of_a_sample(const NoiseOrder& order) {
  if (order.of_sample.empty()) return 1;
  return std::accumulate(order.of_sample.begin(), order.of_sample.end() - 1, std::int64_t{1}, std::multiplies<>());
}

Rows rows_of(const NoiseOrder& order, std::int64_t samples) {
  Rows rows{};
  rows.count = static_cast<unsigned>(samples * rows_of_a_sample(order));
  rows.width = static_cast<unsigned long long>(width_of(order));
  rows.dimensions = static_cast<unsigned>(std::max<std::size_t>(1, order.of_sample.size()));
  unsigned apart = 1;
  for (std::size_t i = rows.dimensions; i-- > 0;) {
    rows.stride[i] = apart;
    if (i > 0) apart *= static_cast<unsigned>(order.of_sample[i - 1]);
  }
  return rows;
}

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what);
}

// LibTorch's own way to the compiler: what it needs lies where its file says.
void* compiler_library() {
  Dl_info place{};
  std::string name = "libcaffe2_nvrtc.so";
  if (dladdr(reinterpret_cast<void*>(&c10::cuda::device_count), &place) != 0 && place.dli_fname != nullptr)
    name = std::filesystem::path(place.dli_fname).replace_filename(name).string();
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fail(fmt::format("the compiler for it cannot be loaded: {}", dlerror()));
  return library;
}

template <typename Function>
Function* compilers(void* library, const char* name) {
  auto* const found = reinterpret_cast<Function*>(dlsym(library, name));
  if (found == nullptr) fail(fmt::format("the compiler for it has no {}", name));
  return found;
}

template <typename Function>
Function* drivers(const char* name) {
  constexpr unsigned k_since = 12000;
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  if (cudaGetDriverEntryPointByVersion(name, &found, k_since, cudaEnableDefault, &result) != cudaSuccess ||
      found == nullptr) {
    static_cast<void>(cudaGetLastError());  // else the next launch takes it for its own
    fail(fmt::format("the driver has no {}", name));
  }
  return reinterpret_cast<Function*>(found);
}

// NVRTC's and the driver's types, whose headers do not come with LibTorch.
using Program = void*;
using Module = void*;
using Kernel = void*;

std::string compiled(c10::DeviceIndex device) {
  void* const library = compiler_library();
  using Create = int(Program*, const char*, const char*, int, const char* const*, const char* const*);
  using Compile = int(Program, int, const char* const*);
  using Size = int(Program, std::size_t*);
  using Content = int(Program, char*);
  cudaDeviceProp properties{};
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  const std::string architecture = fmt::format("--gpu-architecture=sm_{}{}", properties.major, properties.minor);
  const std::array<const char*, 1> options = {architecture.c_str()};
  Program program = nullptr;
  const auto content = [&](const char* size_of, const char* get) {
    std::size_t size = 0;
    compilers<Size>(library, size_of)(program, &size);
    std::string text(size, '\0');
    compilers<Content>(library, get)(program, text.data());
    return text;
  };
  if (compilers<Create>(library, "nvrtcCreateProgram")(&program, k_noise_kernel, "noise_kernel.cu", 0, nullptr,
                                                       nullptr) != 0)
    fail("the compiler for it does not start");
  const bool done = compilers<Compile>(library, "nvrtcCompileProgram")(program, options.size(), options.data()) == 0;
  std::string code =
      done ? content("nvrtcGetCUBINSize", "nvrtcGetCUBIN") : content("nvrtcGetProgramLogSize", "nvrtcGetProgramLog");
  compilers<int(Program*)>(library, "nvrtcDestroyProgram")(&program);
  if (!done) fail(fmt::format("the compiler refuses it for {}: {}", architecture, code));
  return code;
}

class CudaNoise final : public DeviceNoise {
 public:
  explicit CudaNoise(c10::DeviceIndex device)
      : device_(device), launch_(drivers<Launch>("cuLaunchKernel")), code_(compiled(device)) {
    const c10::cuda::CUDAGuard on_device(device_);
    C10_CUDA_CHECK(cudaFree(nullptr));  // the driver knows the runtime's device from then on
    Module module = nullptr;
    if (drivers<int(Module*, const void*)>("cuModuleLoadData")(&module, code_.data()) != 0)
      fail("the driver does not take what was compiled");
    auto* const kernel_of = drivers<int(Kernel*, Module, const char*)>("cuModuleGetFunction");
    for (std::size_t i = 0; i < kernels_.size(); ++i) {
      const std::string name = fmt::format("noise_of_{}_bytes", 2U << i);
      if (kernel_of(&kernels_[i], module, name.c_str()) != 0) fail(fmt::format("what was compiled has no {}", name));
    }
  }

  bool can_draw(const NoiseOrder& order, std::int64_t samples) const override {
    return order.of_sample.size() <= k_most_dimensions &&
           samples * rows_of_a_sample(order) <= std::numeric_limits<int>::max();
  }

  void fill(const at::Tensor& noise, const at::Tensor& key, const NoiseOrder& order, std::uint64_t kept) override {
    if (noise.numel() == 0) return;
    const c10::cuda::CUDAGuard on_device(device_);
    put({noise.mutable_data_ptr(), key.const_data_ptr<std::int64_t>(), key.numel() - 1, noise.element_size()}, order,
        kept, c10::cuda::getCurrentCUDAStream(device_).stream());
  }

  std::vector<std::uint32_t> drawn(const std::vector<std::int64_t>& key, const NoiseOrder& order,
                                   std::uint32_t kept) override {
    const c10::cuda::CUDAGuard on_device(device_);
    const auto samples = static_cast<std::int64_t>(key.size()) - 1;
    std::vector<std::uint32_t> numbers(static_cast<std::size_t>(samples * rows_of_a_sample(order) * width_of(order)));
    const Memory key_there(key.size() * sizeof(key[0]));
    const Memory noise_there(numbers.size() * sizeof(numbers[0]));
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device_).stream();
    C10_CUDA_CHECK(
        cudaMemcpyAsync(key_there.address, key.data(), key.size() * sizeof(key[0]), cudaMemcpyHostToDevice, stream));
    put({noise_there.address, static_cast<const std::int64_t*>(key_there.address), samples, sizeof(numbers[0])}, order,
        kept, stream);
    C10_CUDA_CHECK(cudaMemcpyAsync(numbers.data(), noise_there.address, numbers.size() * sizeof(numbers[0]),
                                   cudaMemcpyDeviceToHost, stream));
    C10_CUDA_CHECK(cudaStreamSynchronize(stream));
    return numbers;
  }

 private:
  using Launch = int(Kernel, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, cudaStream_t, void**,
                     void**);

  struct Memory {
    explicit Memory(std::size_t bytes) { C10_CUDA_CHECK(cudaMalloc(&address, bytes)); }
    ~Memory() { static_cast<void>(cudaFree(address)); }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    void* address = nullptr;
  };

  struct Place {
    void* noise;
    const std::int64_t* key;
    std::int64_t samples;
    std::int64_t element_bytes;
  };

  void put(Place place, const NoiseOrder& order, std::uint64_t kept, cudaStream_t stream) const {
    Rows rows = rows_of(order, place.samples);
    std::int64_t layer = order.layer;
    std::uint64_t threshold = order.threshold;
    // Little-endian: the kernel takes as many of its first bytes as an element has.
    std::array<void*, 6> arguments = {&place.noise, &place.key, &layer, &rows, &threshold, &kept};
    const Kernel kernel = kernels_[place.element_bytes == 2 ? 0 : (place.element_bytes == 4 ? 1 : 2)];
    const std::int64_t x =
        std::clamp<std::int64_t>((rows.count + k_rows_of_a_block - 1) / k_rows_of_a_block, 1, k_most_blocks);
    const std::int64_t y =
        std::clamp<std::int64_t>(static_cast<std::int64_t>(rows.width) / (k_threads_of_a_row * k_elements_of_a_thread),
                                 1, std::max<std::int64_t>(1, k_enough_blocks / x));
    const int failed = launch_(kernel, static_cast<unsigned>(x), static_cast<unsigned>(y), 1, k_threads_of_a_row,
                               k_rows_of_a_block, 1, 0, stream, arguments.data(), nullptr);
    if (failed != 0) fail(fmt::format("a mask's kernel could not be started: the driver's error {}", failed));
  }

  c10::DeviceIndex device_;
  Launch* launch_;
  std::string code_;
  std::array<Kernel, 3> kernels_{};
};

}  // namespace

std::unique_ptr<DeviceNoise> create_device_noise(c10::Device device) {
  return std::make_unique<CudaNoise>(device.index());
}

}  // namespace onebatch
