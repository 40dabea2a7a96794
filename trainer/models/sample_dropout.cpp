#include "trainer/models/sample_dropout.hpp"

#include "trainer/base/error.hpp"
#include "trainer/base/mix_bits.hpp"
#include "trainer/base/transfer.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <fmt/format.h>

#include <cmath>

namespace onebatch {
namespace {

std::uint64_t sample_key(const ForwardContext& context, std::int64_t layer, std::int64_t sample) {
  std::uint64_t key = mix_bits(context.seed);
  for (const std::int64_t part : {context.step, layer, sample}) key = mix_bits(key ^ static_cast<std::uint64_t>(part));
  return key;
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

}  // namespace

at::Tensor sample_noise(at::IntArrayRef sizes, double probability, std::int64_t layer, const ForwardContext& context) {
  const auto samples = static_cast<std::int64_t>(context.samples.size());
  if (sizes.empty() || samples == 0 || sizes[0] % samples != 0)
    throw UserError(
        fmt::format("dropout of {} rows, but the micro-batch has {} samples: give the model's dropouts inputs whose "
                    "first dimension is the batch",
                    sizes.empty() ? 0 : sizes[0], samples));
  at::Tensor noise = at::empty(sizes, at::TensorOptions().dtype(at::kFloat));
  std::vector<std::int64_t> of_sample = sizes.slice(1).vec();
  if (sizes[0] != samples) of_sample.insert(of_sample.begin(), sizes[0] / samples);
  float* value = noise.mutable_data_ptr<float>();
  const auto threshold = static_cast<std::uint64_t>(std::ldexp(probability, 32));
  for (const std::int64_t sample : context.samples)
    value = fill(value, sample_key(context, layer, sample), of_sample, threshold);
  return noise;
}

at::Tensor sample_dropout(const at::Tensor& inputs, double probability, std::int64_t layer,
                          const ForwardContext& context) {
  const at::Tensor noise = sample_noise(inputs.sizes(), probability, layer, context);
  return at::mul(
      inputs,
      upload(noise.mul_(static_cast<float>(1.0 / (1.0 - probability))), inputs.device()).to(inputs.scalar_type()));
}

}  // namespace onebatch
