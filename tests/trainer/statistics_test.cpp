// BatchNorm's arithmetic in pieces, against LibTorch's BatchNorm of all samples in float64, and its error against that
// of LibTorch's own float32: data far from zero, few samples, all layouts and types.
#include "trainer/batch_norm/statistics.hpp"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

namespace onebatch {
namespace {

constexpr double k_eps = 1e-5;
constexpr double k_rounding = 6e-8;

// What a BatchNorm makes of its inputs and of the gradient at its outputs.
struct Made {
  at::Tensor outputs, input_gradient, weight_gradient, bias_gradient;
};

struct Given {
  at::Tensor inputs, gradient, weight, bias;
};

Made one_batch(const Given& given, at::ScalarType type) {
  const auto leaf = [](const at::Tensor& tensor, at::ScalarType as) {
    return tensor.detach().to(as).set_requires_grad(true);
  };
  const at::ScalarType of_parameters = type == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor x = leaf(given.inputs, type), w = leaf(given.weight, of_parameters),
                   b = leaf(given.bias, of_parameters);
  const at::Tensor y = at::batch_norm(x, w, b, {}, {}, /*training=*/true, 0.1, k_eps, /*cudnn_enabled=*/false);
  const auto gradients = torch::autograd::grad({y}, {x, w, b}, {given.gradient.to(type)});
  return {y.detach(), gradients[0], gradients[1], gradients[2]};
}

Made in_pieces(const Given& given, const std::vector<std::int64_t>& sizes) {
  const auto inputs = given.inputs.split_with_sizes(sizes);
  const auto gradients = given.gradient.split_with_sizes(sizes);
  Moments moments;
  for (const at::Tensor& part : inputs) moments.add(moments_of(part));
  const Normaliser by = make_normaliser(moments, k_eps, given.weight.options());
  OutputSums sums;
  std::vector<at::Tensor> outputs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    outputs.push_back(normalised(inputs[i], given.weight, given.bias, by));
    sums.add(output_sums(gradients[i], inputs[i], by));
  }
  std::vector<at::Tensor> input_gradients;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    input_gradients.push_back(input_gradient(gradients[i], inputs[i], given.weight, by, sums));
  return {at::cat(outputs), at::cat(input_gradients), sums.gradient_times_normalised, sums.gradient};
}

double error_of(const at::Tensor& ours, const at::Tensor& truth) {
  return (ours.to(at::kDouble) - truth).norm().item<double>() / truth.norm().item<double>();
}

struct Case {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> sizes;
  double offset;  // mean over deviation
  at::MemoryFormat format = at::MemoryFormat::Contiguous;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const double offset : {0.0, 1.0, 100.0, 1e4}) {
    all.push_back({{2, 5, 6, 6}, {1, 1}, offset});
    all.push_back({{2, 5}, {1, 1}, offset});
    all.push_back({{37, 5}, {12, 1, 24}, offset});
    all.push_back({{24, 19, 7}, {7, 16, 1}, offset});
    all.push_back({{16, 7, 9, 5}, {5, 2, 9}, offset});
    all.push_back({{16, 7, 9, 5}, {5, 2, 9}, offset, at::MemoryFormat::ChannelsLast});
    all.push_back({{6, 3, 2, 3, 4}, {5, 1}, offset});
    all.push_back({{6, 3, 2, 3, 4}, {5, 1}, offset, at::MemoryFormat::ChannelsLast3d});
  }
  return all;
}

Given given_of(const Case& one, at::ScalarType type, std::uint64_t seed) {
  at::manual_seed(seed);
  const std::int64_t channels = one.shape[1];
  std::vector<std::int64_t> by_channel(one.shape.size(), 1);
  by_channel[1] = channels;
  const at::Tensor offsets = at::linspace(-1.0, 1.0, channels).mul(one.offset).view(by_channel);
  const at::ScalarType of_parameters = type == at::kDouble ? at::kDouble : at::kFloat;
  return {at::randn(one.shape).add(offsets).to(type).contiguous(one.format),
          at::randn(one.shape).to(type).contiguous(one.format), at::rand({channels}).add(0.5).to(of_parameters),
          at::randn({channels}).to(of_parameters)};
}

std::string text_of(const Case& one) {
  std::string text = "mean/deviation ";
  text.append(std::to_string(one.offset)).append(", shape");
  for (const std::int64_t size : one.shape) text.append(" ").append(std::to_string(size));
  return text + (one.format == at::MemoryFormat::Contiguous ? "" : ", channels last");
}

TEST(StatisticsTest, pieces_make_the_whole_in_float64) {
  for (const Case& one : cases()) {
    const Given given = given_of(one, at::kDouble, 1);
    const Made truth = one_batch(given, at::kDouble);
    const Made ours = in_pieces(given, one.sizes);
    const double allowed =
        1e-13 * std::max(1.0, one.offset) * (one.sizes == std::vector<std::int64_t>{1, 1} ? 1e5 : 1.0);
    EXPECT_LE(error_of(ours.outputs, truth.outputs), allowed) << text_of(one);
    EXPECT_LE(error_of(ours.weight_gradient, truth.weight_gradient), allowed) << text_of(one);
    EXPECT_LE(error_of(ours.bias_gradient, truth.bias_gradient), allowed) << text_of(one);
    EXPECT_LE(error_of(ours.input_gradient, truth.input_gradient), allowed) << text_of(one);
  }
}

// Everything that is within twice what LibTorch's float32 is off float64, or within the rounding of what is handed on.
TEST(StatisticsTest, float32_errs_as_one_batch_of_float32_does) {
  for (const Case& one : cases()) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      const Given given = given_of(one, at::kFloat, seed);
      const Made truth = one_batch(given, at::kDouble);
      const Made single = one_batch(given, at::kFloat);
      const Made ours = in_pieces(given, one.sizes);
      const auto check = [&](const at::Tensor Made::*what, const char* name) {
        EXPECT_LE(error_of(ours.*what, truth.*what),
                  std::max(2.0 * error_of(single.*what, truth.*what), 2.0 * k_rounding))
            << name << ", " << text_of(one) << ", seed " << seed;
      };
      check(&Made::outputs, "outputs");
      check(&Made::input_gradient, "input gradient");
      check(&Made::weight_gradient, "weight's gradient");
      check(&Made::bias_gradient, "bias's gradient");
    }
  }
}

TEST(StatisticsTest, short_inputs_have_statistics_in_float32) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    for (const double offset : {0.0, 3.0}) {
      const Case one{{16, 7, 9, 5}, {5, 2, 9}, offset};
      const Given given = given_of(one, type, 2);
      const Made truth = one_batch(given, at::kDouble);
      const Made single = one_batch(given, type);
      const Made ours = in_pieces(given, one.sizes);
      EXPECT_LE(error_of(ours.outputs, truth.outputs), 2.0 * error_of(single.outputs, truth.outputs));
      EXPECT_LE(error_of(ours.input_gradient, truth.input_gradient),
                2.0 * error_of(single.input_gradient, truth.input_gradient));
      EXPECT_LE(error_of(ours.weight_gradient, truth.weight_gradient),
                2.0 * error_of(single.weight_gradient, truth.weight_gradient));
    }
  }
}

// The first element alone is far away: what a shift by it would cancel.
TEST(StatisticsTest, an_outlier_at_the_beginning_costs_nothing) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    at::manual_seed(4);
    at::Tensor inputs = at::randn({64, 2, 40, 40}, at::kDouble);
    inputs[0][0][0][0] = 1e5;
    inputs = inputs.to(type);
    const Moments ours = moments_of(inputs);
    const at::Tensor exact = inputs.to(at::kDouble).transpose(0, 1).flatten(1);
    const double mean = exact[0].mean().item<double>();
    const double squares = exact[0].sub(mean).square().sum().item<double>();
    EXPECT_NEAR(ours.mean[0].item<double>(), mean, 1e-13 * 1e5);
    EXPECT_NEAR(ours.squares[0].item<double>(), squares, 1e-12 * squares);
  }
}

}  // namespace
}  // namespace onebatch
