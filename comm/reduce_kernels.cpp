#include "comm/reduce_kernels.hpp"

#include "comm/half.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

namespace onebatch::comm {
namespace {

// What is being added to stays in the nearest cache.
constexpr std::size_t k_block = 2048;

template <ReduceOp op, typename T>
T combine(T a, T b) {
  if constexpr (op == ReduceOp::sum) return static_cast<T>(a + b);
  if constexpr (op == ReduceOp::min) return b < a ? b : a;
  return a < b ? b : a;
}

template <ReduceOp op, typename T>
void combine_two(T* __restrict out, const T* __restrict a, const T* __restrict b, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = combine<op>(a[i], b[i]);
}

template <ReduceOp op, typename T>
void add_to(T* __restrict out, const T* __restrict a, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = combine<op>(out[i], a[i]);
}

// Two float32 buffers into both of them: what a node of two ranks does with its gradient, so it has a loop of its own,
// for whole cache lines.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
void sum_into_both(float* __restrict a, float* __restrict b, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const float both = a[i] + b[i];
    a[i] = both;
    b[i] = both;
  }
}

template <ReduceOp op, typename T>
void reduce(void* out, std::span<const void* const> inputs, std::size_t count) {
  if (inputs.size() == 1) {
    std::memcpy(out, inputs[0], count * sizeof(T));
    return;
  }
  for (std::size_t begin = 0; begin < count; begin += k_block) {
    const std::size_t length = std::min(k_block, count - begin);
    T* to = static_cast<T*>(out) + begin;
    combine_two<op>(to, static_cast<const T*>(inputs[0]) + begin, static_cast<const T*>(inputs[1]) + begin, length);
    for (std::size_t i = 2; i < inputs.size(); ++i) add_to<op>(to, static_cast<const T*>(inputs[i]) + begin, length);
  }
}

template <ReduceOp op, typename Widen, typename Narrow>
void reduce_half(void* out, std::span<const void* const> inputs, std::size_t count, Widen widen, Narrow narrow) {
  std::array<float, k_block> sum;
  for (std::size_t begin = 0; begin < count; begin += k_block) {
    const std::size_t length = std::min(k_block, count - begin);
    const auto* first = static_cast<const std::uint16_t*>(inputs[0]) + begin;
    for (std::size_t k = 0; k < length; ++k) sum[k] = widen(first[k]);
    for (const void* input : inputs.subspan(1)) {
      const auto* from = static_cast<const std::uint16_t*>(input) + begin;
      for (std::size_t k = 0; k < length; ++k) sum[k] = combine<op>(sum[k], widen(from[k]));
    }
    auto* to = static_cast<std::uint16_t*>(out) + begin;
    for (std::size_t k = 0; k < length; ++k) to[k] = narrow(sum[k]);
  }
}

template <ReduceOp op>
void reduce_type(void* out, std::span<const void* const> inputs, std::size_t count, ScalarType type) {
  switch (type) {
    case ScalarType::uint8: return reduce<op, std::uint8_t>(out, inputs, count);
    case ScalarType::int32: return reduce<op, std::int32_t>(out, inputs, count);
    case ScalarType::int64: return reduce<op, std::int64_t>(out, inputs, count);
    case ScalarType::float32: return reduce<op, float>(out, inputs, count);
    case ScalarType::float64: return reduce<op, double>(out, inputs, count);
    case ScalarType::float16:
      return reduce_half<op>(
          out, inputs, count, [](std::uint16_t bits) { return half_to_float(bits); },
          [](float value) { return float_to_half(value); });
    case ScalarType::bfloat16:
      return reduce_half<op>(
          out, inputs, count, [](std::uint16_t bits) { return bfloat16_to_float(bits); },
          [](float value) { return float_to_bfloat16(value); });
  }
}

}  // namespace

void reduce_in_order(void* out, std::span<const void* const> inputs, std::size_t count, ScalarType type, ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return reduce_type<ReduceOp::sum>(out, inputs, count, type);
    case ReduceOp::min: return reduce_type<ReduceOp::min>(out, inputs, count, type);
    case ReduceOp::max: return reduce_type<ReduceOp::max>(out, inputs, count, type);
  }
}

void reduce_in_place(std::span<void* const> buffers, std::size_t count, ScalarType type, ReduceOp op) {
  if (buffers.size() == 2 && type == ScalarType::float32 && op == ReduceOp::sum)
    return sum_into_both(static_cast<float*>(buffers[0]), static_cast<float*>(buffers[1]), count);
  const std::size_t element = size_of(type);
  alignas(64) std::array<std::byte, k_block * sizeof(double)> sum;
  std::vector<const void*> inputs(buffers.size());
  for (std::size_t begin = 0; begin < count; begin += k_block) {
    const std::size_t length = std::min(k_block, count - begin);
    for (std::size_t i = 0; i < buffers.size(); ++i)
      inputs[i] = static_cast<const std::byte*>(buffers[i]) + begin * element;
    reduce_in_order(sum.data(), inputs, length, type, op);
    for (void* buffer : buffers)
      std::memcpy(static_cast<std::byte*>(buffer) + begin * element, sum.data(), length * element);
  }
}

}  // namespace onebatch::comm
