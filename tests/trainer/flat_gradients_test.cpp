#include "trainer/gradients/flat_gradients.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace onebatch {
namespace {

NamedTensor parameter(const std::string& name, at::IntArrayRef shape) {
  return {name, at::ones(shape).set_requires_grad(true)};
}

TEST(FlatGradientsTest, backwards_add_into_the_flat_buffer) {
  const std::vector<NamedTensor> parameters = {parameter("a", {3}), parameter("b", {2, 2})};
  FlatGradients gradients(parameters);
  for (int pass = 1; pass <= 2; ++pass) {
    parameters[0].tensor.sum().mul(2.0).add(parameters[1].tensor.sum().mul(3.0)).backward();
    EXPECT_DOUBLE_EQ(gradients.flat().sum().item<double>(), pass * (3 * 2.0 + 4 * 3.0));
  }
  gradients.begin_step();
  EXPECT_DOUBLE_EQ(gradients.flat().abs().sum().item<double>(), 0.0);
}

TEST(FlatGradientsTest, views_begin_at_multiples_of_64_bytes) {
  FlatGradients gradients({parameter("a", {3}), parameter("b", {17}), parameter("c", {1})});
  for (const at::Tensor& view : gradients.views()) {
    const auto offset =
        static_cast<const char*>(view.const_data_ptr()) - static_cast<const char*>(gradients.flat().const_data_ptr());
    EXPECT_EQ(offset % 64, 0);
  }
}

TEST(FlatGradientsTest, only_what_a_backward_reached_is_touched) {
  const std::vector<NamedTensor> parameters = {parameter("a", {3}), parameter("b", {2})};
  FlatGradients gradients(parameters);
  parameters[1].tensor.sum().backward();
  EXPECT_EQ(gradients.touched(), (std::vector<double>{0.0, 1.0}));
  gradients.begin_step();
  EXPECT_EQ(gradients.touched(), (std::vector<double>{0.0, 0.0}));
}

TEST(FlatGradientsTest, frozen_parameters_have_no_part) {
  FlatGradients gradients({parameter("a", {3}), {"frozen", at::ones({5})}});
  EXPECT_EQ(gradients.parameters().size(), 1U);
}

TEST(FlatGradientsTest, a_lost_view_is_an_error_that_names_the_parameter) {
  const std::vector<NamedTensor> parameters = {parameter("weight", {3})};
  FlatGradients gradients(parameters);
  parameters[0].tensor.mutable_grad() = at::zeros({3});
  try {
    gradients.begin_step();
    FAIL();
  } catch (const std::logic_error& error) {
    EXPECT_NE(std::string(error.what()).find("weight"), std::string::npos);
  }
}

// Filled with what a step has left, and begun anew without zeroing.
struct Unwritten {
  Unwritten() {
    gradients.flat().fill_(NAN);
    gradients.begin_step(Begin::unwritten);
  }

  std::vector<NamedTensor> parameters = {parameter("a", {3}), parameter("b", {2, 2}), parameter("c", {1})};
  FlatGradients gradients{parameters};
};

TEST(FlatGradientsTest, whoever_looks_at_what_is_unwritten_sees_zeros) {
  Unwritten flat, views, summed, added, completed;
  EXPECT_TRUE(at::equal(flat.gradients.flat(), at::zeros_like(flat.gradients.flat())));
  EXPECT_EQ(views.gradients.views()[1].sum().item<double>(), 0.0);
  EXPECT_EQ(summed.gradients.summed().sum().item<double>(), 0.0);
  added.gradients.add(added.parameters[2].tensor, at::ones({1}));
  completed.gradients.complete_sum();
  for (const at::Tensor& parameter : {added.parameters[1].tensor, completed.parameters[0].tensor})
    EXPECT_EQ(parameter.grad().sum().item<double>(), 0.0);
  EXPECT_EQ(added.gradients.flat().sum().item<double>(), 1.0);
}

TEST(FlatGradientsTest, all_is_zeroed_but_what_the_caller_writes) {
  Unwritten one;
  EXPECT_TRUE(one.gradients.zero_unwritten({1}));
  EXPECT_FALSE(one.gradients.zero_unwritten());
  const at::Tensor unwritten = at::isnan(one.gradients.flat());
  EXPECT_EQ(unwritten.sum().item<std::int64_t>(), 4);  // nor is there any in the gaps
  EXPECT_TRUE(at::isnan(one.parameters[1].tensor.grad()).all().item<bool>());
  one.parameters[1].tensor.mutable_grad().zero_();
  one.parameters[0].tensor.sum().backward();
  EXPECT_EQ(one.gradients.flat().sum().item<double>(), 3.0);
}

TEST(FlatGradientsTest, a_step_that_begins_as_ever_is_zeroed) {
  Unwritten one;
  one.gradients.begin_step();
  EXPECT_FALSE(one.gradients.zero_unwritten({1}));
  EXPECT_EQ(one.gradients.flat().sum().item<double>(), 0.0);
}

TEST(FlatGradientsTest, gathered_gradients_are_added_as_single_ones_are) {
  for (const std::int64_t most_bytes : {std::int64_t{1}, std::int64_t{16}, FlatGradients::Gathering::k_most_bytes}) {
    const std::vector<NamedTensor> parameters = {parameter("a", {3}), parameter("b", {2, 2}), parameter("c", {5})};
    FlatGradients gradients(parameters);
    for (int pass = 1; pass <= 2; ++pass) {
      FlatGradients::Gathering gathering(gradients, most_bytes);
      parameters[0].tensor.pow(2).sum().add(parameters[1].tensor.sum().mul(3.0)).backward();
      EXPECT_FALSE(parameters[0].tensor.grad().defined());
      gathering.finish();
      EXPECT_TRUE(at::equal(gradients.views()[0], at::full({3}, 2.0 * pass)));
      EXPECT_TRUE(at::equal(gradients.views()[1], at::full({2, 2}, 3.0 * pass)));
    }
    EXPECT_EQ(gradients.touched(), (std::vector<double>{1.0, 1.0, 0.0}));
    parameters[2].tensor.sum().backward();
    EXPECT_DOUBLE_EQ(gradients.flat().sum().item<double>(), 3 * 4.0 + 4 * 6.0 + 5.0) << "as before, after one";
    EXPECT_NO_THROW(gradients.begin_step());
  }
}

TEST(FlatGradientsTest, of_a_backward_that_throws_what_was_reached_is_added) {
  const std::vector<NamedTensor> parameters = {parameter("a", {3}), parameter("b", {2, 2})};
  FlatGradients gradients(parameters);
  const at::Tensor inner = parameters[0].tensor.mul(2.0);
  inner.register_hook([](const at::Tensor&) -> at::Tensor { throw std::runtime_error("no memory"); });
  const at::Tensor loss = parameters[1].tensor.sum().add(inner.sum());
  try {
    FlatGradients::Gathering gathering(gradients);
    loss.backward();
    FAIL();
  } catch (const std::exception&) {
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const bool reached = gradients.touched()[i] != 0.0;
    EXPECT_EQ(gradients.views()[i].abs().sum().item<double>() != 0.0, reached);
  }
  EXPECT_NO_THROW(gradients.begin_step());
}

TEST(FlatGradientsTest, who_listens_hears_of_each_with_its_gradient_added) {
  const std::vector<NamedTensor> parameters = {parameter("a", {3}), parameter("b", {2, 2})};
  FlatGradients gradients(parameters);
  std::vector<double> heard;
  gradients.set_listener([&](std::size_t i) { heard.push_back(gradients.views()[i].sum().item<double>()); });
  FlatGradients::Gathering gathering(gradients);
  parameters[0].tensor.sum().add(parameters[1].tensor.sum().mul(2.0)).backward();
  gathering.finish();
  std::ranges::sort(heard);
  EXPECT_EQ(heard, (std::vector<double>{3.0, 8.0}));
}

TEST(FlatGradientsTest, buckets_cover_everything_once) {
  for (const std::int64_t cap : {1, 4, 100, 4096}) {
    std::int64_t next = 0;
    for (const Bucket& bucket : make_buckets(1000, 4, cap)) {
      EXPECT_EQ(bucket.begin, next);
      EXPECT_GE(bucket.count, 1);
      EXPECT_LE(bucket.count * 4, std::max<std::int64_t>(cap, 4));
      next += bucket.count;
    }
    EXPECT_EQ(next, 1000);
  }
  EXPECT_TRUE(make_buckets(0, 4, 100).empty());
}

}  // namespace
}  // namespace onebatch
