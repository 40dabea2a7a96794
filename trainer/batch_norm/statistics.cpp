#include "trainer/batch_norm/statistics.hpp"

#include "trainer/base/transfer.hpp"
#include "trainer/batch_norm/host_passes.hpp"

#include <ATen/ops/batch_norm_backward_reduce.h>
#include <ATen/ops/batch_norm_update_stats.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

namespace onebatch {
namespace {

using host_passes::Channels;

// On the host, where tensors are made of few numbers.
Channels channels_of(const at::Tensor& numbers) {
  const at::Tensor values = numbers.detach().to(at::kDouble).contiguous();
  const auto* data = values.const_data_ptr<double>();
  return {data, data + values.numel()};
}

std::optional<at::Tensor> optional(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

// Over all dimensions but the second.
at::Tensor channel_mean(const at::Tensor& tensor) {
  return tensor.transpose(0, 1).flatten(1).mean(1);
}

at::Tensor scaled(const at::Tensor& values, const at::Tensor& weight) {
  return weight.defined() ? values.mul(weight.detach().to(at::kDouble)) : values;
}

at::Tensor by_channel(const at::Tensor& values, const at::Tensor& like) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(like.dim()), 1);
  shape[1] = values.numel();
  return values.view(shape);
}

// Adds both rows of a slot, where it has any.
void pack(const at::Tensor& first, const at::Tensor& second, Packed& to, std::vector<at::Tensor>& rows) {
  to.has.push_back(first.defined());
  if (first.defined()) rows.insert(rows.end(), {first, second});
}

}  // namespace

void Moments::add(const Moments& more) {
  if (more.count == 0.0) return;
  if (count == 0.0) {
    *this = more;
    return;
  }
  const double total = count + more.count;
  const at::Tensor delta = more.mean.sub(mean);
  mean = mean.add(delta.mul(more.count).div_(total));
  squares = squares.add(delta.square().mul_(count).mul_(more.count).div_(total).add_(more.squares));
  count = total;
}

std::vector<double> Packed::read() const {
  const std::vector<double> found = rows.defined() ? read_numbers(rows) : std::vector<double>();
  std::vector<double> numbers;
  auto from = found.begin();
  for (std::size_t i = 0; i < has.size(); ++i) {
    if (!counts.empty()) numbers.push_back(counts[i]);
    const auto next = has[i] ? from + 2 * channels : from;
    numbers.insert(numbers.end(), from, next);
    numbers.resize((i + 1) * width(), 0.0);
    from = next;
  }
  return numbers;
}

Packed packed(const std::vector<Moments>& slots, std::int64_t channels) {
  Packed made = {.counts = {}, .has = {}, .rows = {}, .channels = channels};
  std::vector<at::Tensor> rows;
  for (const Moments& moments : slots) {
    made.counts.push_back(moments.count);
    pack(moments.mean, moments.squares, made, rows);
  }
  if (!rows.empty()) made.rows = at::cat(rows);
  return made;
}

std::vector<Moments> unpacked_moments(const std::vector<double>& numbers, const at::Tensor& there,
                                      std::int64_t channels) {
  const std::int64_t width = 1 + 2 * channels;
  const at::Tensor rows = there.view({-1, width});
  std::vector<Moments> slots;
  for (std::int64_t i = 0; i < rows.size(0); ++i)
    slots.push_back({numbers[static_cast<std::size_t>(i * width)], rows[i].narrow(0, 1, channels),
                     rows[i].narrow(0, 1 + channels, channels)});
  return slots;
}

// Around the first sample's mean, since a device sums in float32: what is left of the mean is then at most the
// deviation times the square root of the number of samples.
Moments moments_of(const at::Tensor& inputs) {
  if (host_passes::take(inputs)) return host_passes::moments(inputs);
  Moments moments;
  moments.count = static_cast<double>(inputs.numel() / inputs.size(1));
  const at::Tensor x = inputs.detach();
  if (at::isReducedFloatingType(x.scalar_type())) {
    // Running statistics of float32 make the kernels answer in it; momentum 0 leaves them alone.
    const at::Tensor running = at::zeros({2, x.size(1)}, x.options().dtype(at::kFloat));
    const auto [mean, variance] = at::batch_norm_update_stats(x, running[0], running[1], 0.0);
    moments.mean = mean.to(at::kDouble);
    moments.squares = variance.to(at::kDouble).mul_(moments.count);
  } else {
    const at::Tensor shift = channel_mean(x.narrow(0, 0, 1));
    const auto [mean, variance] = at::batch_norm_update_stats(x.sub(by_channel(shift, x)), {}, {}, 0.0);
    moments.mean = mean.to(at::kDouble).add(shift);
    moments.squares = variance.to(at::kDouble).mul(moments.count);
  }
  return moments;
}

Normaliser make_normaliser(const Moments& moments, double eps, const at::TensorOptions& options) {
  const at::Tensor variance = moments.squares.div(moments.count);
  const at::Tensor invstd = variance.add(eps).sqrt_().reciprocal_();
  const at::Tensor rounded = moments.mean.to(options);
  const at::Tensor left = moments.mean.sub(rounded.to(at::kDouble)).mul_(invstd);
  return {.mean = moments.mean,
          .invstd = invstd,
          .left = left,
          .eps = eps,
          .count = moments.count,
          .rounded_mean = rounded,
          .rounded_variance = variance.to(options),
          .rounded_left = left.to(options)};
}

at::Tensor normalised(const at::Tensor& inputs, const at::Tensor& weight, const at::Tensor& bias,
                      const Normaliser& by) {
  if (host_passes::take(inputs)) {
    const Channels offset =
        bias.defined() ? channels_of(bias) : Channels(static_cast<std::size_t>(by.mean.numel()), 0.0);
    return host_passes::applied({channels_of(by.mean), channels_of(scaled(by.invstd, weight)), offset}, inputs);
  }
  at::Tensor offset = weight.defined() ? by.rounded_left.mul(weight.detach()).neg_() : by.rounded_left.neg();
  if (bias.defined()) offset.add_(bias.detach());
  return std::get<0>(at::native_batch_norm(inputs.detach(), optional(weight.defined() ? weight.detach() : weight),
                                           offset, by.rounded_mean, by.rounded_variance, /*training=*/false, 0.0,
                                           by.eps));
}

void OutputSums::add(const OutputSums& more) {
  if (!more.gradient.defined()) return;
  if (!gradient.defined()) {
    *this = more;
    return;
  }
  gradient = gradient.add(more.gradient);
  gradient_times_normalised = gradient_times_normalised.add(more.gradient_times_normalised);
}

Packed packed(const std::vector<OutputSums>& slots, std::int64_t channels) {
  Packed made = {.counts = {}, .has = {}, .rows = {}, .channels = channels};
  std::vector<at::Tensor> rows;
  for (const OutputSums& sums : slots) pack(sums.gradient, sums.gradient_times_normalised, made, rows);
  if (!rows.empty()) made.rows = at::cat(rows);
  return made;
}

std::vector<OutputSums> unpacked_output_sums(const at::Tensor& there, std::int64_t channels) {
  const at::Tensor rows = there.view({-1, 2 * channels});
  std::vector<OutputSums> slots;
  for (std::int64_t i = 0; i < rows.size(0); ++i)
    slots.push_back({rows[i].narrow(0, 0, channels), rows[i].narrow(0, channels, channels)});
  return slots;
}

OutputSums output_sums(const at::Tensor& gradient, const at::Tensor& inputs, const Normaliser& by) {
  if (host_passes::take(inputs))
    return host_passes::output_sums(gradient, inputs, channels_of(by.mean), channels_of(by.invstd));
  OutputSums sums;
  if (inputs.is_cuda()) {
    // The CPU's call below wants saved statistics there. This one sums g and g * (x - mean).
    const at::Tensor invstd = by.rounded_variance.add(by.eps).rsqrt_();
    const auto [plain, times_centred, none_weight, none_bias] = at::batch_norm_backward_reduce(
        gradient, inputs.detach(), by.rounded_mean, invstd, {}, /*input_g=*/true, /*weight_g=*/false, /*bias_g=*/false);
    sums = {plain.to(at::kDouble), times_centred.mul(invstd).to(at::kDouble)};
  } else {
    const auto [none, times_normalised, plain] =
        at::native_batch_norm_backward(gradient, inputs.detach(), {}, by.rounded_mean, by.rounded_variance, {}, {},
                                       /*train=*/false, by.eps, {false, true, true});
    sums = {plain.to(at::kDouble), times_normalised.to(at::kDouble)};
  }
  sums.gradient_times_normalised = sums.gradient_times_normalised.sub(sums.gradient.mul(by.left));
  return sums;
}

at::Tensor input_gradient(const at::Tensor& gradient, const at::Tensor& inputs, const at::Tensor& weight,
                          const Normaliser& by, const OutputSums& total) {
  const bool on_host = host_passes::take(inputs);
  const at::Tensor slope = total.gradient_times_normalised.div(-by.count);  // of x̂
  const at::Tensor offset =
      (on_host ? total.gradient : total.gradient.sub(total.gradient_times_normalised.mul(by.left))).div(-by.count);
  if (on_host) {
    const at::Tensor factor = scaled(by.invstd, weight);
    return host_passes::applied({channels_of(by.mean), channels_of(slope.mul(factor).mul_(by.invstd)),
                                 channels_of(offset.mul(factor)), channels_of(factor)},
                                inputs, gradient);
  }
  at::Tensor factor = by.rounded_variance.add(by.eps).rsqrt_();
  if (weight.defined()) factor.mul_(weight.detach());
  const at::Tensor rows = at::stack({slope, offset}).to(factor.scalar_type()).mul_(factor);
  at::Tensor result = std::get<0>(at::native_batch_norm(inputs.detach(), rows[0], rows[1], by.rounded_mean,
                                                        by.rounded_variance, /*training=*/false, 0.0, by.eps));
  return result.addcmul_(gradient, by_channel(factor, inputs));
}

void update_running(const at::Tensor& running_mean, const at::Tensor& running_var, const Moments& moments,
                    double momentum) {
  const auto blend = [&](const at::Tensor& running, const at::Tensor& statistic) {
    if (running.defined())
      running.copy_(running.to(at::kDouble).mul_(1.0 - momentum).add_(statistic.to(running.device()), momentum));
  };
  blend(running_mean, moments.mean);
  blend(running_var, moments.squares.div(moments.count).mul_(moments.count / std::max(1.0, moments.count - 1.0)));
}

}  // namespace onebatch
