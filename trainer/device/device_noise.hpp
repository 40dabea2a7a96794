// Random zeros drawn on a GPU, by a kernel that is compiled for the card at run time (NVRTC, which comes with
// LibTorch).
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

namespace onebatch {

/// What sample_noise() draws, as the kernel is told it.
struct NoiseOrder {
  std::int64_t layer = 0;
  std::uint64_t threshold = 0;          // an element whose 32 bits are below it is zero
  std::vector<std::int64_t> of_sample;  // sizes of what belongs to one sample
};

class DeviceNoise {
 public:
  DeviceNoise() = default;
  DeviceNoise(const DeviceNoise&) = delete;
  DeviceNoise& operator=(const DeviceNoise&) = delete;
  virtual ~DeviceNoise() = default;

  /// Whether it can: some shapes are beyond the kernel.
  [[nodiscard]] virtual bool can_draw(const NoiseOrder& order, std::int64_t samples) const = 0;
  /// Sets each element of `noise`, which is contiguous and has elements of 2, 4 or 8 bytes, to zero or to `kept`, its
  /// bits. `key`, int64 on the device: mix_bits(mix_bits(seed) ^ step), then the samples. Puts it on the current
  /// stream; nothing but `key` is the host's, so a graph of the device may repeat it.
  virtual void fill(const at::Tensor& noise, const at::Tensor& key, const NoiseOrder& order, std::uint64_t kept) = 0;
  /// The same of 4 bytes each, in memory of its own and read back, when the device has done all before.
  virtual std::vector<std::uint32_t> drawn(const std::vector<std::int64_t>& key, const NoiseOrder& order,
                                           std::uint32_t kept) = 0;
};

/// Compiles the kernel. Throws std::runtime_error with what is missing, or the compiler's words.
std::unique_ptr<DeviceNoise> create_device_noise(c10::Device device);

}  // namespace onebatch
