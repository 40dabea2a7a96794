#include "trainer/batch_norm/host_passes.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <array>

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define ONEBATCH_VECTORISED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define ONEBATCH_VECTORISED
#endif

namespace onebatch::host_passes {
namespace {

constexpr std::int64_t k_lanes = 8;                 // sums side by side, since a sum in one order does not vectorise
constexpr std::int64_t k_least_elements = 1 << 14;  // for a thread

// How elements lie: [outer, channels, inner].
struct Extent {
  std::int64_t outer, channels, inner;
};

// Channels [begin, end) of it.
struct Part {
  Extent of;
  std::int64_t begin, end;
};

struct Pointers {
  const double *mean, *slope, *offset, *factor;
};

// Two sums for each channel of a part: of a and a·b, where b is x − centre and a is the gradient, or b itself where
// there is none.
template <typename T>
[[gnu::always_inline]] inline void add_up(const T* __restrict x, const T* __restrict g, const Part& part,
                                          const double* __restrict centre, double* __restrict first,
                                          double* __restrict second) {
  const auto [outer, channels, inner] = part.of;
  if (inner == 1) {
    for (std::int64_t n = 0; n < outer; ++n) {
      const T* row = x + n * channels;
      const T* weights = g == nullptr ? nullptr : g + n * channels;
      for (std::int64_t c = part.begin; c < part.end; ++c) {
        const double b = static_cast<double>(row[c]) - centre[c];
        const double a = weights == nullptr ? b : static_cast<double>(weights[c]);
        first[c] += a;
        second[c] += a * b;
      }
    }
    return;
  }
  for (std::int64_t c = part.begin; c < part.end; ++c) {
    const double mean = centre[c];
    std::array<double, k_lanes> firsts{};
    std::array<double, k_lanes> seconds{};
    for (std::int64_t n = 0; n < outer; ++n) {
      const T* plane = x + (n * channels + c) * inner;
      const T* weights = g == nullptr ? nullptr : g + (n * channels + c) * inner;
      std::int64_t i = 0;
      for (; i + k_lanes <= inner; i += k_lanes) {
        for (std::int64_t lane = 0; lane < k_lanes; ++lane) {
          const double b = static_cast<double>(plane[i + lane]) - mean;
          const double a = weights == nullptr ? b : static_cast<double>(weights[i + lane]);
          firsts[static_cast<std::size_t>(lane)] += a;
          seconds[static_cast<std::size_t>(lane)] += a * b;
        }
      }
      for (; i < inner; ++i) {
        const double b = static_cast<double>(plane[i]) - mean;
        const double a = weights == nullptr ? b : static_cast<double>(weights[i]);
        firsts[0] += a;
        seconds[0] += a * b;
      }
    }
    for (std::size_t lane = 0; lane < k_lanes; ++lane) {
      first[c] += firsts[lane];
      second[c] += seconds[lane];
    }
  }
}

// Planes [begin, end) of outer · channels, or rows where a plane is one element.
template <typename T>
[[gnu::always_inline]] inline void apply(const T* __restrict x, const T* __restrict g, T* __restrict y,
                                         const Part& part, const Pointers& by) {
  const auto [outer, channels, inner] = part.of;
  if (inner == 1) {
    for (std::int64_t n = part.begin; n < part.end; ++n) {
      const std::int64_t at = n * channels;
      for (std::int64_t c = 0; c < channels; ++c) {
        const double scaled = (static_cast<double>(x[at + c]) - by.mean[c]) * by.slope[c] + by.offset[c];
        y[at + c] = static_cast<T>(g == nullptr ? scaled : scaled + static_cast<double>(g[at + c]) * by.factor[c]);
      }
    }
    return;
  }
  for (std::int64_t plane = part.begin; plane < part.end; ++plane) {
    const std::int64_t c = plane % channels;
    const double mean = by.mean[c], slope = by.slope[c], offset = by.offset[c],
                 factor = g == nullptr ? 0.0 : by.factor[c];
    for (std::int64_t i = plane * inner; i < (plane + 1) * inner; ++i) {
      const double scaled = (static_cast<double>(x[i]) - mean) * slope + offset;
      y[i] = static_cast<T>(g == nullptr ? scaled : scaled + static_cast<double>(g[i]) * factor);
    }
  }
}

ONEBATCH_VECTORISED void add_part(const float* x, const float* g, const Part& part, const double* centre, double* first,
                                  double* second) {
  g == nullptr ? add_up<float>(x, nullptr, part, centre, first, second)
               : add_up<float>(x, g, part, centre, first, second);
}
ONEBATCH_VECTORISED void add_part(const double* x, const double* g, const Part& part, const double* centre,
                                  double* first, double* second) {
  g == nullptr ? add_up<double>(x, nullptr, part, centre, first, second)
               : add_up<double>(x, g, part, centre, first, second);
}
ONEBATCH_VECTORISED void apply_part(const float* x, const float* g, float* y, const Part& part, const Pointers& by) {
  g == nullptr ? apply<float>(x, nullptr, y, part, by) : apply<float>(x, g, y, part, by);
}
ONEBATCH_VECTORISED void apply_part(const double* x, const double* g, double* y, const Part& part, const Pointers& by) {
  g == nullptr ? apply<double>(x, nullptr, y, part, by) : apply<double>(x, g, y, part, by);
}

at::MemoryFormat format_of(const at::Tensor& inputs) {
  if (inputs.is_contiguous()) return at::MemoryFormat::Contiguous;
  if (inputs.is_contiguous(at::MemoryFormat::ChannelsLast)) return at::MemoryFormat::ChannelsLast;
  if (inputs.is_contiguous(at::MemoryFormat::ChannelsLast3d)) return at::MemoryFormat::ChannelsLast3d;
  return at::MemoryFormat::Contiguous;
}

// Both in one order, without gaps.
struct Dense {
  Dense(const at::Tensor& inputs, const at::Tensor& gradient)
      : format(format_of(inputs)), x(inputs.detach().contiguous(format)) {
    if (gradient.defined()) g = gradient.detach().to(x.scalar_type()).contiguous(format);
    const std::int64_t channels = x.size(1);
    const bool last = format != at::MemoryFormat::Contiguous;
    const std::int64_t rows = channels == 0 ? 0 : x.numel() / channels;
    extent =
        last ? Extent{rows, channels, 1} : Extent{x.size(0), channels, rows / std::max<std::int64_t>(1, x.size(0))};
  }
  at::MemoryFormat format;
  at::Tensor x, g;
  Extent extent{};
};

struct TwoSums {
  Channels first, second;
};

// Each channel is summed by one thread, in one order: how many there are changes no bit.
template <typename T>
TwoSums sum(const Dense& dense, const Channels& centre) {
  const auto channels = static_cast<std::size_t>(dense.extent.channels);
  TwoSums sums{Channels(channels, 0.0), Channels(channels, 0.0)};
  const T* x = dense.x.const_data_ptr<T>();
  const T* g = dense.g.defined() ? dense.g.const_data_ptr<T>() : nullptr;
  const std::int64_t of_a_channel = std::max<std::int64_t>(1, dense.extent.outer * dense.extent.inner);
  at::parallel_for(0, dense.extent.channels, std::max<std::int64_t>(8, k_least_elements / of_a_channel),
                   [&](std::int64_t begin, std::int64_t end) {
                     add_part(x, g, {dense.extent, begin, end}, centre.data(), sums.first.data(), sums.second.data());
                   });
  return sums;
}

TwoSums sum_of(const Dense& dense, const Channels& centre) {
  return dense.x.scalar_type() == at::kDouble ? sum<double>(dense, centre) : sum<float>(dense, centre);
}

template <typename T>
Channels first_elements(const Dense& dense) {
  Channels first;
  for (std::int64_t c = 0; c < dense.extent.channels; ++c)
    first.push_back(static_cast<double>(dense.x.const_data_ptr<T>()[c * dense.extent.inner]));
  return first;
}

template <typename T>
void apply_to(const Dense& dense, const Pointers& by, at::Tensor& result) {
  const T* x = dense.x.const_data_ptr<T>();
  const T* g = dense.g.defined() ? dense.g.const_data_ptr<T>() : nullptr;
  T* y = result.mutable_data_ptr<T>();
  const auto [outer, channels, inner] = dense.extent;
  const std::int64_t parts = inner == 1 ? outer : outer * channels;
  const std::int64_t of_a_part = std::max<std::int64_t>(1, inner == 1 ? channels : inner);
  at::parallel_for(0, parts, std::max<std::int64_t>(1, k_least_elements / of_a_part),
                   [&](std::int64_t begin, std::int64_t end) {
                     apply_part(x, g, y, {dense.extent, begin, end}, by);
                   });
}

}  // namespace

bool take(const at::Tensor& inputs) {
  return inputs.is_cpu() && (inputs.scalar_type() == at::kFloat || inputs.scalar_type() == at::kDouble);
}

// One pass, around each channel's first element; a second around the mean where the first element is so far from it
// that squares would cancel each other.
Moments moments(const at::Tensor& inputs) {
  constexpr double k_most_cancelled = 1e4;
  const Dense dense(inputs, {});
  const auto count = static_cast<double>(dense.extent.outer * dense.extent.inner);
  Channels mean;
  Channels squares;
  Channels centre = dense.x.scalar_type() == at::kDouble ? first_elements<double>(dense) : first_elements<float>(dense);
  for (int pass = 0; pass < 2; ++pass) {
    const TwoSums sums = sum_of(dense, centre);
    mean = centre;
    squares = sums.second;
    bool cancelled = false;
    for (std::size_t c = 0; c < centre.size(); ++c) {
      const double beside = sums.first[c] / count;
      mean[c] += beside;
      squares[c] = std::max(0.0, squares[c] - beside * sums.first[c]);
      cancelled = cancelled || sums.second[c] > k_most_cancelled * squares[c];
    }
    if (!cancelled) break;
    centre = mean;
  }
  return {count, at::tensor(mean, at::kDouble), at::tensor(squares, at::kDouble)};
}

OutputSums output_sums(const at::Tensor& gradient, const at::Tensor& inputs, const Channels& mean,
                       const Channels& scale) {
  TwoSums sums = sum_of(Dense(inputs, gradient), mean);
  std::ranges::transform(sums.second, scale, sums.second.begin(), std::multiplies<>());
  return {at::tensor(sums.first, at::kDouble), at::tensor(sums.second, at::kDouble)};
}

at::Tensor applied(const Affine& affine, const at::Tensor& inputs, const at::Tensor& gradient) {
  const Dense dense(inputs, gradient);
  at::Tensor result = at::empty_like(dense.x);
  const Pointers by{affine.mean.data(), affine.slope.data(), affine.offset.data(), affine.factor.data()};
  dense.x.scalar_type() == at::kDouble ? apply_to<double>(dense, by, result) : apply_to<float>(dense, by, result);
  return result;
}

}  // namespace onebatch::host_passes
