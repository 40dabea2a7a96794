#include "trainer/models/sample_dropout.hpp"
#include "trainer/mix_bits.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>

#include <cmath>
#include <stdexcept>

namespace onebatch {
namespace {

std::uint64_t row_key(const ForwardContext& context, std::int64_t layer, std::int64_t sample) {
  std::uint64_t key = mix_bits(context.seed);
  for (const std::int64_t part : {context.step, layer, sample}) key = mix_bits(key ^ static_cast<std::uint64_t>(part));
  return key;
}

}  // namespace

at::Tensor sample_dropout(const at::Tensor& inputs, double probability, std::int64_t layer, const ForwardContext& context) {
  const std::int64_t rows = inputs.size(0);
  if (rows != static_cast<std::int64_t>(context.samples.size())) {
    throw std::logic_error("dropout of " + std::to_string(rows) + " rows, but the micro-batch has " +
                           std::to_string(context.samples.size()) + " samples");
  }
  const std::int64_t width = rows == 0 ? 0 : inputs.numel() / rows;
  at::Tensor mask = at::empty(inputs.sizes(), at::TensorOptions().dtype(at::kFloat));
  float* value = mask.mutable_data_ptr<float>();
  const auto threshold = static_cast<std::uint64_t>(std::ldexp(probability, 32));
  const auto scale = static_cast<float>(1.0 / (1.0 - probability));
  for (const std::int64_t sample : context.samples) {
    const std::uint64_t key = row_key(context, layer, sample);
    for (std::int64_t j = 0; j < width; ++j) {
      *value++ = (mix_bits(key + static_cast<std::uint64_t>(j)) >> 32) < threshold ? 0.0F : scale;
    }
  }
  return at::mul(inputs, mask.to(inputs.device(), inputs.scalar_type()));
}

}  // namespace onebatch
