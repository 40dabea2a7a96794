#include "trainer/models/sample_dropout.hpp"

#include "trainer/base/error.hpp"
#include "trainer/base/mix_bits.hpp"
#include "trainer/base/transfer.hpp"
#include "trainer/device/device_noise.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <mutex>

namespace onebatch {
namespace {

std::uint64_t key_of_step(const ForwardContext& context) {
  return mix_bits(mix_bits(context.seed) ^ static_cast<std::uint64_t>(context.step));
}

std::uint64_t sample_key(std::uint64_t of_step, std::int64_t layer, std::int64_t sample) {
  return mix_bits(mix_bits(of_step ^ static_cast<std::uint64_t>(layer)) ^ static_cast<std::uint64_t>(sample));
}

// 0 with the threshold's probability, else 1. Rows have keys of their own, by their coordinates.
float* fill(float* value, std::uint64_t key, at::IntArrayRef sizes, std::uint64_t threshold) {
  if (sizes.size() > 1) {
    for (std::int64_t i = 0; i < sizes[0]; ++i)
      value = fill(value, mix_bits(key ^ static_cast<std::uint64_t>(i)), sizes.slice(1), threshold);
    return value;
  }
  const std::int64_t width = sizes.empty() ? 1 : sizes[0];
  for (std::int64_t j = 0; j < width; ++j)
    *value++ = (mix_bits(key + static_cast<std::uint64_t>(j)) >> 32) < threshold ? 0.0F : 1.0F;
  return value;
}

NoiseOrder order_of(at::IntArrayRef sizes, double probability, std::int64_t layer, const ForwardContext& context) {
  const auto samples = static_cast<std::int64_t>(context.samples.size());
  if (sizes.empty() || samples == 0 || sizes[0] % samples != 0)
    throw UserError(
        fmt::format("dropout of {} rows, but the micro-batch has {} samples: give the model's dropouts inputs whose "
                    "first dimension is the batch",
                    sizes.empty() ? 0 : sizes[0], samples));
  NoiseOrder order{layer, static_cast<std::uint64_t>(std::ldexp(probability, 32)), sizes.slice(1).vec()};
  if (sizes[0] != samples) order.of_sample.insert(order.of_sample.begin(), sizes[0] / samples);
  return order;
}

std::vector<std::int64_t> key_of(const ForwardContext& context) {
  std::vector<std::int64_t> key = {static_cast<std::int64_t>(key_of_step(context))};
  key.insert(key.end(), context.samples.begin(), context.samples.end());
  return key;
}

// As a multiplication with it in that type would leave of one.
std::optional<std::uint64_t> bits_of(double kept, at::ScalarType type) {
  const auto single = static_cast<float>(kept);
  switch (type) {
    case at::kDouble: return std::bit_cast<std::uint64_t>(kept);
    case at::kFloat: return std::bit_cast<std::uint32_t>(single);
    case at::kHalf: return at::Half(single).x;
    case at::kBFloat16: return at::BFloat16(single).x;
    default: return std::nullopt;
  }
}

// A GPU that draws. What it draws first is compared with the host's: a card that were wrong here would train another
// model in silence.
class DrawingDevice {
 public:
  explicit DrawingDevice(c10::Device device) {
    try {
      noise_ = create_device_noise(device);
      if (!draws_as_the_host()) refuse("what it draws is not what the host draws");
    } catch (const std::exception& error) {
      refuse(error.what());
    }
  }

  [[nodiscard]] DeviceNoise* get() const { return noise_.get(); }
  [[nodiscard]] const std::string& why_not() const { return why_not_; }

 private:
  void refuse(const std::string& why) {
    noise_ = nullptr;
    why_not_ = why;
  }

  [[nodiscard]] bool draws_as_the_host() const {
    const std::vector<std::int64_t> samples = {3, std::int64_t{1} << 40, 0};
    const ForwardContext context{0x9d2c5680, 12345, samples};
    for (const std::vector<std::int64_t>& sizes : {std::vector<std::int64_t>{6, 2, 3, 17}, {3, 300}, {3}}) {
      const at::Tensor expected = sample_noise(sizes, 0.3, 5, context);
      const float* const first = expected.const_data_ptr<float>();
      const auto found = noise_->drawn(key_of(context), order_of(sizes, 0.3, 5, context), 1);
      if (!std::ranges::equal(found, std::span(first, first + expected.numel()),
                              [](std::uint32_t one, float other) { return (one == 1 ? 1.0F : 0.0F) == other; }))
        return false;
    }
    return true;
  }

  std::unique_ptr<DeviceNoise> noise_;
  std::string why_not_;
};

struct Drawing {
  std::mutex mutex;
  std::map<c10::DeviceIndex, DrawingDevice> devices;
  std::string to_tell;
};

// Left where it is when the process ends: the driver may have gone before.
Drawing& drawing() {
  static auto* const made = new Drawing();
  return *made;
}

DeviceNoise* drawing_on(c10::Device device) {
  if (!device.is_cuda()) return nullptr;
  const std::lock_guard lock(drawing().mutex);
  const auto [found, is_new] = drawing().devices.try_emplace(device.index(), device);
  if (is_new) drawing().to_tell = found->second.why_not();
  return found->second.get();
}

}  // namespace

at::Tensor sample_noise(at::IntArrayRef sizes, double probability, std::int64_t layer, const ForwardContext& context) {
  const NoiseOrder order = order_of(sizes, probability, layer, context);
  at::Tensor noise = at::empty(sizes, at::TensorOptions().dtype(at::kFloat));
  float* value = noise.mutable_data_ptr<float>();
  for (const std::int64_t sample : context.samples)
    value = fill(value, sample_key(key_of_step(context), layer, sample), order.of_sample, order.threshold);
  return noise;
}

at::Tensor noise_key(const ForwardContext& context) {
  const std::vector<std::int64_t> key = key_of(context);
  at::Tensor numbers = at::empty({std::ssize(key)}, at::TensorOptions().dtype(at::kLong));
  std::ranges::copy(key, numbers.mutable_data_ptr<std::int64_t>());
  return numbers;
}

const at::Tensor& key_on(c10::Device device, const ForwardContext& context) {
  if (!context.key.defined()) context.key = upload(noise_key(context), device);
  return context.key;
}

at::Tensor sample_noise_like(const at::Tensor& like, at::IntArrayRef sizes, double probability, double kept,
                             std::int64_t layer, const ForwardContext& context) {
  const NoiseOrder order = order_of(sizes, probability, layer, context);
  const auto bits = bits_of(kept, like.scalar_type());
  DeviceNoise* const device = bits ? drawing_on(like.device()) : nullptr;
  if (device == nullptr || !device->can_draw(order, static_cast<std::int64_t>(context.samples.size()))) {
    at::Tensor noise = upload(sample_noise(sizes, probability, layer, context), like.device()).to(like.scalar_type());
    return kept == 1.0 ? noise : noise.mul_(kept);
  }
  const at::Tensor& key = key_on(like.device(), context);
  at::Tensor noise = at::empty(sizes, like.options().requires_grad(false).memory_format(at::MemoryFormat::Contiguous));
  device->fill(noise, key, order, *bits);
  return noise;
}

at::Tensor shared_noise_like(const at::Tensor& like, at::IntArrayRef sizes, double probability, double kept,
                             std::int64_t layer, const ForwardContext& context) {
  static constexpr std::array<std::int64_t, 1> k_of_all = {-1};  // no sample has this number
  std::vector<std::int64_t> rows = {1};
  rows.insert(rows.end(), sizes.begin(), sizes.end());
  const ForwardContext shared{context.seed, context.step, k_of_all};
  if (like.is_cuda()) {  // on the device, so that a recorded graph draws anew in each step
    const at::Tensor& key = key_on(like.device(), context);
    shared.key = at::cat({key.narrow(0, 0, 1), at::full({1}, k_of_all[0], key.options())});
  }
  return sample_noise_like(like, rows, probability, kept, layer, shared).squeeze(0);
}

bool has_host_draws_to_tell() {
  const std::lock_guard lock(drawing().mutex);
  return !drawing().to_tell.empty();
}

std::string take_host_draws() {
  const std::lock_guard lock(drawing().mutex);
  return std::exchange(drawing().to_tell, {});
}

at::Tensor sample_dropout(const at::Tensor& inputs, double probability, std::int64_t layer,
                          const ForwardContext& context) {
  return at::mul(inputs,
                 sample_noise_like(inputs, inputs.sizes(), probability, 1.0 / (1.0 - probability), layer, context));
}

}  // namespace onebatch
