#include "trainer/gradients/reproducible_sum.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>

#include <bit>
#include <cmath>
#include <optional>
#include <stdexcept>

namespace onebatch {
namespace {

constexpr int k_step_bits = 40;           // from the base down to the step; 53 - 40 bits are left for 2^13 summands
constexpr int k_raise_bits = 4;           // a base that moves goes so far above what is there
constexpr std::int64_t k_no_base = -900;  // below all gradients: the first step is computed twice
constexpr int k_near_bits = 2;
constexpr int k_lower_above = 12;  // and comes down when it is more than so far above
// Adding 1.5 * 2^(base + 12), whose last bit is the step, and taking it away, rounds.
constexpr int k_round_bits = 52 - k_step_bits;
static_assert(ReproducibleSum::k_most_calls == std::int64_t{1} << (53 - k_step_bits));

double rounder(std::int64_t base) {
  return std::ldexp(1.5, static_cast<int>(base) + k_round_bits);
}

// The least power of two that is not below `value`.
std::int64_t exponent_above(double value) {
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);
  return fraction == 0.5 ? exponent - 1 : exponent;
}

// Rounds as `write` says and keeps the largest in absolute value. Bits of positive floats are ordered as they are,
// which vectorises where comparing floats does not; what is not finite counts as the largest.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
double
add_rounded(const float* __restrict from, double* __restrict to, std::int64_t count, double round, bool to_nothing) {
  std::int32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double rounded = (static_cast<double>(from[i]) + round) - round;
    to[i] = to_nothing ? rounded : to[i] + rounded;
    const std::int32_t bits = std::bit_cast<std::int32_t>(from[i]) & 0x7fffffff;
    largest = bits > largest ? bits : largest;
  }
  return static_cast<double>(std::bit_cast<float>(largest));
}

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
void divide(const double* __restrict from, float* __restrict to, std::int64_t count, double divisor) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i] / divisor);
}

}  // namespace

std::int64_t ReproducibleSum::length(std::int64_t count, at::ScalarType type) {
  return type == at::kDouble ? 2 * count : count;
}

ReproducibleSum::ReproducibleSum(std::vector<Bucket> extents, at::Tensor sums, std::int64_t count)
    : extents_(std::move(extents)),
      sums_(std::move(sums)),
      count_(count),
      largest_(at::zeros({static_cast<std::int64_t>(extents_.size())}, sums_.options())),
      bases_(extents_.size(), k_no_base),
      added_(extents_.size(), false) {}

void ReproducibleSum::begin_step() {
  added_.assign(added_.size(), false);
  largest_.zero_();
}

void ReproducibleSum::add(std::size_t index, const at::Tensor& gradient) {
  const at::NoGradGuard no_grad;
  const auto [begin, count] = extents_[index];
  if (count == 0) return;
  const double round = rounder(bases_[index]);
  const bool once = sums_.numel() == count_;
  const bool to_nothing = !added_[index];
  added_[index] = true;
  if (gradient.is_cpu() && gradient.scalar_type() == at::kFloat && once) {
    const at::Tensor dense = gradient.contiguous();
    double& largest = largest_.mutable_data_ptr<double>()[index];
    const double mine =
        add_rounded(dense.const_data_ptr<float>(), sums_.mutable_data_ptr<double>() + begin, count, round, to_nothing);
    if (!(mine <= largest)) largest = mine;
    return;
  }
  at::Tensor rest = gradient.to(sums_.device(), at::kDouble).flatten();
  const at::Tensor largest = largest_[static_cast<std::int64_t>(index)];
  largest.copy_(at::maximum(largest, at::amax(rest.abs())));
  at::Tensor part = rest.add(round).sub_(round);
  const auto put = [&](std::int64_t at, const at::Tensor& summand) {
    const at::Tensor sum = sums_.narrow(0, at, count);
    to_nothing ? sum.copy_(summand) : sum.add_(summand);
  };
  put(begin, part);
  if (once) return;
  const double finer = std::ldexp(round, -k_step_bits);
  put(count_ + begin, rest.sub(part).add_(finer).sub_(finer));
}

void ReproducibleSum::complete() {
  for (std::size_t i = 0; i < added_.size(); ++i) {
    if (added_[i]) continue;
    for (std::int64_t part = 0; part < sums_.numel(); part += count_)
      sums_.narrow(0, part + extents_[i].begin, extents_[i].count).zero_();
  }
}

std::vector<double> ReproducibleSum::largest() const {
  const at::Tensor host = largest_.cpu();
  std::vector<double> values(host.const_data_ptr<double>(), host.const_data_ptr<double>() + host.numel());
  // A maximum with NaN would depend on the order.
  for (double& value : values) value = std::isfinite(value) ? value : HUGE_VAL;
  return values;
}

bool ReproducibleSum::follow(const std::vector<double>& largest_of_all) {
  const auto needed_by = [&](std::size_t i) -> std::optional<std::int64_t> {
    const double largest = largest_of_all.at(i);
    // Nothing was added, or something that no step fits: the caller sees it in the sum.
    if (largest == 0.0 || !std::isfinite(largest)) return std::nullopt;
    return exponent_above(largest);
  };
  bool good = true;
  for (std::size_t i = 0; i < bases_.size(); ++i) good = good && needed_by(i).value_or(bases_[i]) <= bases_[i];
  // Where the step is computed again anyway, those that are nearly too low go up as well.
  const std::int64_t too_near = good ? 0 : k_near_bits;
  for (std::size_t i = 0; i < bases_.size(); ++i) {
    const auto needed = needed_by(i);
    if (needed && (*needed + too_near > bases_[i] || *needed + k_lower_above < bases_[i]))
      bases_[i] = *needed + k_raise_bits;
  }
  return good;
}

void ReproducibleSum::write_to(const at::Tensor& flat, double divisor) const {
  const at::NoGradGuard no_grad;
  if (sums_.numel() != count_) {
    flat.copy_(sums_.narrow(0, 0, count_).add(sums_.narrow(0, count_, count_)).div_(divisor));
  } else if (sums_.is_cpu() && flat.scalar_type() == at::kFloat) {
    divide(sums_.const_data_ptr<double>(), flat.mutable_data_ptr<float>(), count_, divisor);
  } else {
    flat.copy_(sums_.div(divisor));
  }
}

void ReproducibleSum::set_bases(const std::vector<std::int64_t>& bases) {
  if (bases.size() != bases_.size()) throw std::invalid_argument("as many bases as parameters are needed");
  bases_ = bases;
}

}  // namespace onebatch
