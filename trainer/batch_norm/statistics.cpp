#include "trainer/batch_norm/statistics.hpp"

#include <ATen/ops/batch_norm_backward_reduce.h>
#include <ATen/ops/batch_norm_update_stats.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>

#include <algorithm>

namespace onebatch {
namespace {

std::vector<double> to_host(const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach().cpu().to(at::kDouble).contiguous();
  const auto* data = values.const_data_ptr<double>();
  return {data, data + values.numel()};
}

at::Tensor to_tensor(const std::vector<double>& values, const at::TensorOptions& options) {
  auto* data = const_cast<double*>(values.data());  // NOLINT(cppcoreguidelines-pro-type-const-cast): copied on the next line
  return at::from_blob(data, {static_cast<std::int64_t>(values.size())}, at::kDouble).to(options, /*non_blocking=*/false, /*copy=*/true);
}

std::optional<at::Tensor> optional(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
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

Moments moments_of(const at::Tensor& inputs) {
  Moments moments;
  moments.count = static_cast<double>(inputs.numel() / inputs.size(1));
  const auto [mean, variance] = at::batch_norm_update_stats(inputs.detach(), {}, {}, 0.0);
  moments.mean = to_host(mean);
  moments.squares = to_host(variance);
  for (double& value : moments.squares) value *= moments.count;
  return moments;
}

Normaliser make_normaliser(const Moments& moments, double eps, const at::TensorOptions& options) {
  return {to_tensor(moments.mean, options), to_tensor(moments.variance(), options), eps, moments.count};
}

at::Tensor normalised(const at::Tensor& inputs, const at::Tensor& weight, const at::Tensor& bias, const Normaliser& by) {
  return std::get<0>(at::native_batch_norm(inputs.detach(), optional(weight.defined() ? weight.detach() : weight),
                                           optional(bias.defined() ? bias.detach() : bias), by.mean, by.variance, /*training=*/false, 0.0,
                                           by.eps));
}

void OutputSums::add(const OutputSums& more) {
  add_to(gradient, more.gradient);
  add_to(gradient_times_normalised, more.gradient_times_normalised);
}

OutputSums output_sums(const at::Tensor& gradient, const at::Tensor& inputs, const Normaliser& by) {
  if (inputs.is_cuda()) {
    // The CPU's call below wants saved statistics there. This one sums g and g * (x - mean).
    const at::Tensor invstd = by.variance.add(by.eps).rsqrt_();
    const auto [plain, times_centred, none_weight, none_bias] = at::batch_norm_backward_reduce(
        gradient, inputs.detach(), by.mean, invstd, {}, /*input_g=*/true, /*weight_g=*/false, /*bias_g=*/false);
    return {to_host(plain), to_host(times_centred.mul(invstd))};
  }
  const auto [none, times_normalised, plain] = at::native_batch_norm_backward(gradient, inputs.detach(), {}, by.mean, by.variance, {}, {},
                                                                              /*train=*/false, by.eps, {false, true, true});
  return {to_host(plain), to_host(times_normalised)};
}

at::Tensor input_gradient(const at::Tensor& gradient, const at::Tensor& inputs, const at::Tensor& weight, const Normaliser& by,
                          const OutputSums& total) {
  const at::TensorOptions options = by.mean.options();
  at::Tensor factor = by.variance.add(by.eps).rsqrt_();
  if (weight.defined()) factor.mul_(weight.detach());
  const at::Tensor slope = to_tensor(total.gradient_times_normalised, options).mul_(factor).div_(-by.count);
  const at::Tensor offset = to_tensor(total.gradient, options).mul_(factor).div_(-by.count);
  at::Tensor result =
      std::get<0>(at::native_batch_norm(inputs.detach(), slope, offset, by.mean, by.variance, /*training=*/false, 0.0, by.eps));
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
