// What native code tells of sums that it is done with: the operator is called as such code does, by its name.
#include "trainer/models/final_sums.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>
#include <vector>

namespace onebatch {
namespace {

using Places = std::vector<std::size_t>;

void call(std::vector<std::int64_t> places) {
  const std::vector<at::Tensor> sums(places.size(), at::zeros({2}));
  c10::Dispatcher::singleton()
      .findSchemaOrThrow("onebatch::are_final", "")
      .typed<void(at::TensorList, at::IntArrayRef)>()
      .call(sums, places);
}

TEST(FinalSumsTest, HearsOfEachPlaceInTurn) {
  Places told;
  {
    const FinalSums early([&](std::size_t place) { told.push_back(place); });
    call({2, 0});
    call({1});
    early.rethrow();
  }
  call({3});
  EXPECT_EQ(told, (Places{2, 0, 1}));
}

TEST(FinalSumsTest, WithoutAListenerNothingIsDone) {
  EXPECT_NO_THROW(call({0}));
}

TEST(FinalSumsTest, TheInnermostHears) {
  Places outer;
  Places inner;
  const FinalSums first([&](std::size_t place) { outer.push_back(place); });
  {
    const FinalSums second([&](std::size_t place) { inner.push_back(place); });
    call({4});
  }
  call({5});
  EXPECT_EQ(inner, Places{4});
  EXPECT_EQ(outer, Places{5});
}

TEST(FinalSumsTest, AnotherThreadIsNotHeard) {
  Places told;
  const FinalSums early([&](std::size_t place) { told.push_back(place); });
  std::thread([] { call({0}); }).join();
  EXPECT_TRUE(told.empty());
}

TEST(FinalSumsTest, WhatItThrowsIsKeptForAfterwards) {
  Places told;
  const FinalSums early([&](std::size_t place) {
    told.push_back(place);
    if (place == 1) throw std::runtime_error("no more");
  });
  EXPECT_NO_THROW(call({0, 1, 2}));
  EXPECT_NO_THROW(call({3}));
  EXPECT_EQ(told, (Places{0, 1}));
  EXPECT_THROW(early.rethrow(), std::runtime_error);
}

}  // namespace
}  // namespace onebatch
