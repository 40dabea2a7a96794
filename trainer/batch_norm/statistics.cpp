#include "trainer/batch_norm/statistics.hpp"

#include "trainer/batch_norm/host_passes.hpp"

#include <ATen/ops/batch_norm_backward_reduce.h>
#include <ATen/ops/batch_norm_update_stats.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

namespace onebatch {
namespace {

using host_passes::Channels;

Channels to_host(const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach().cpu().to(at::kDouble).contiguous();
  const auto* data = values.const_data_ptr<double>();
  return {data, data + values.numel()};
}

// A device is asked once for all of them.
void split_rows(const at::Tensor& rows, std::initializer_list<Channels*> into) {
  const Channels all = to_host(rows);
  const auto width = static_cast<std::ptrdiff_t>(all.size() / into.size());
  auto from = all.begin();
  for (Channels* row : into) {
    row->assign(from, from + width);
    from += width;
  }
}

at::Tensor to_tensor(const std::vector<double>& values, const at::TensorOptions& options) {
  auto* data = const_cast<double*>(values.data());  // NOLINT(cppcoreguidelines-pro-type-const-cast): copied on the next line
  return at::from_blob(data, {static_cast<std::int64_t>(values.size())}, at::kDouble).to(options, /*non_blocking=*/false, /*copy=*/true);
}

std::optional<at::Tensor> optional(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

// Over all dimensions but the second.
at::Tensor channel_mean(const at::Tensor& tensor) {
  return tensor.transpose(0, 1).flatten(1).mean(1);
}

Channels product(Channels one, const Channels& other) {
  std::ranges::transform(one, other, one.begin(), std::multiplies<>());
  return one;
}

at::Tensor by_channel(const at::Tensor& values, const at::Tensor& like) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(like.dim()), 1);
  shape[1] = values.numel();
  return values.view(shape);
}

void add_to(std::vector<double>& sum, const std::vector<double>& more) {
  if (sum.empty()) sum.assign(more.size(), 0.0);
  std::transform(sum.begin(), sum.end(), more.begin(), sum.begin(), std::plus<>());
}

}  // namespace

void Moments::add(const Moments& more) {
  if (more.count == 0.0) return;
  if (count == 0.0) {
    *this = more;
    return;
  }
  const double total = count + more.count;
  for (std::size_t c = 0; c < mean.size(); ++c) {
    const double delta = more.mean[c] - mean[c];
    mean[c] += delta * more.count / total;
    squares[c] += more.squares[c] + delta * delta * count * more.count / total;
  }
  count = total;
}

std::vector<double> Moments::variance() const {
  std::vector<double> values = squares;
  for (double& value : values) value /= count;
  return values;
}

// Around the first sample's mean, since a device sums in float32: what is left of the mean is then at most the deviation times the square
// root of the number of samples.
Moments moments_of(const at::Tensor& inputs) {
  if (host_passes::take(inputs)) return host_passes::moments(inputs);
  Moments moments;
  moments.count = static_cast<double>(inputs.numel() / inputs.size(1));
  const at::Tensor x = inputs.detach();
  if (at::isReducedFloatingType(x.scalar_type())) {
    // Running statistics of float32 make the kernels answer in it; momentum 0 leaves them alone.
    const at::Tensor running = at::zeros({2, x.size(1)}, x.options().dtype(at::kFloat));
    const auto [mean, variance] = at::batch_norm_update_stats(x, running[0], running[1], 0.0);
    split_rows(at::stack({mean, variance}), {&moments.mean, &moments.squares});
  } else {
    const at::Tensor shift = channel_mean(x.narrow(0, 0, 1));
    const auto [mean, variance] = at::batch_norm_update_stats(x.sub(by_channel(shift, x)), {}, {}, 0.0);
    Channels shifted_by;
    split_rows(at::stack({mean, variance, shift}), {&moments.mean, &moments.squares, &shifted_by});
    add_to(moments.mean, shifted_by);
  }
  for (double& value : moments.squares) value *= moments.count;
  return moments;
}

Normaliser make_normaliser(const Moments& moments, double eps, const at::TensorOptions& options) {
  Normaliser by{.mean = moments.mean, .invstd = moments.variance(), .left = moments.mean, .eps = eps, .count = moments.count};
  const at::Tensor exact = at::stack({to_tensor(by.mean, at::kDouble), to_tensor(by.invstd, at::kDouble)});
  const Channels rounded = to_host(exact[0].to(options.dtype()));
  for (std::size_t c = 0; c < rounded.size(); ++c) {
    by.invstd[c] = 1.0 / std::sqrt(by.invstd[c] + eps);
    by.left[c] = (by.left[c] - rounded[c]) * by.invstd[c];
  }
  const at::Tensor on_device = at::cat({exact, to_tensor(by.left, at::kDouble).unsqueeze(0)}).to(options);
  by.rounded_mean = on_device[0];
  by.variance = on_device[1];
  by.left_on_device = on_device[2];
  return by;
}

at::Tensor normalised(const at::Tensor& inputs, const at::Tensor& weight, const at::Tensor& bias, const Normaliser& by) {
  if (host_passes::take(inputs)) {
    const Channels slope = weight.defined() ? product(by.invstd, to_host(weight)) : by.invstd;
    return host_passes::applied({by.mean, slope, bias.defined() ? to_host(bias) : Channels(slope.size(), 0.0)}, inputs);
  }
  at::Tensor offset = weight.defined() ? by.left_on_device.mul(weight.detach()).neg_() : by.left_on_device.neg();
  if (bias.defined()) offset.add_(bias.detach());
  return std::get<0>(at::native_batch_norm(inputs.detach(), optional(weight.defined() ? weight.detach() : weight), offset, by.rounded_mean,
                                           by.variance, /*training=*/false, 0.0, by.eps));
}

void OutputSums::add(const OutputSums& more) {
  add_to(gradient, more.gradient);
  add_to(gradient_times_normalised, more.gradient_times_normalised);
}

OutputSums output_sums(const at::Tensor& gradient, const at::Tensor& inputs, const Normaliser& by) {
  if (host_passes::take(inputs)) return host_passes::output_sums(gradient, inputs, by.mean, by.invstd);
  OutputSums sums;
  if (inputs.is_cuda()) {
    // The CPU's call below wants saved statistics there. This one sums g and g * (x - mean).
    const at::Tensor invstd = by.variance.add(by.eps).rsqrt_();
    const auto [plain, times_centred, none_weight, none_bias] = at::batch_norm_backward_reduce(
        gradient, inputs.detach(), by.rounded_mean, invstd, {}, /*input_g=*/true, /*weight_g=*/false, /*bias_g=*/false);
    split_rows(at::stack({plain, times_centred.mul(invstd)}), {&sums.gradient, &sums.gradient_times_normalised});
  } else {
    const auto [none, times_normalised, plain] = at::native_batch_norm_backward(gradient, inputs.detach(), {}, by.rounded_mean, by.variance,
                                                                                {}, {}, /*train=*/false, by.eps, {false, true, true});
    split_rows(at::stack({plain, times_normalised}), {&sums.gradient, &sums.gradient_times_normalised});
  }
  for (std::size_t c = 0; c < by.left.size(); ++c) sums.gradient_times_normalised[c] -= sums.gradient[c] * by.left[c];
  return sums;
}

at::Tensor input_gradient(const at::Tensor& gradient, const at::Tensor& inputs, const at::Tensor& weight, const Normaliser& by,
                          const OutputSums& total) {
  Channels slope = total.gradient_times_normalised;  // of x̂
  Channels offset = total.gradient;
  const bool on_host = host_passes::take(inputs);
  for (std::size_t c = 0; c < slope.size(); ++c) {
    if (!on_host) offset[c] -= slope[c] * by.left[c];
    slope[c] /= -by.count;
    offset[c] /= -by.count;
  }
  if (on_host) {
    const Channels factor = weight.defined() ? product(by.invstd, to_host(weight)) : by.invstd;
    return host_passes::applied({by.mean, product(product(slope, factor), by.invstd), product(offset, factor), factor}, inputs, gradient);
  }
  at::Tensor factor = by.variance.add(by.eps).rsqrt_();
  if (weight.defined()) factor.mul_(weight.detach());
  const at::Tensor rows = at::stack({to_tensor(slope, at::kDouble), to_tensor(offset, at::kDouble)}).to(factor.options()).mul_(factor);
  at::Tensor result =
      std::get<0>(at::native_batch_norm(inputs.detach(), rows[0], rows[1], by.rounded_mean, by.variance, /*training=*/false, 0.0, by.eps));
  return result.addcmul_(gradient, by_channel(factor, inputs));
}

void update_running(const at::Tensor& running_mean, const at::Tensor& running_var, const Moments& moments, double momentum) {
  const auto blend = [&](const at::Tensor& running, std::vector<double> statistic, double factor) {
    if (!running.defined()) return;
    for (double& value : statistic) value *= factor;
    running.copy_(running.to(at::kDouble).mul_(1.0 - momentum).add_(to_tensor(statistic, running.options().dtype(at::kDouble)), momentum));
  };
  blend(running_mean, moments.mean, 1.0);
  blend(running_var, moments.variance(), moments.count / std::max(1.0, moments.count - 1.0));
}

}  // namespace onebatch
