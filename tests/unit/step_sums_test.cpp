#include "trainer/step/step_sums.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace onebatch {
namespace {

constexpr std::int64_t k_largest_exact = std::int64_t{1} << 53;

// Numbers that no two fields and no two ranks share.
StepPart part_of(std::size_t rank) {
  const auto r = static_cast<double>(rank);
  const auto whole = static_cast<std::int64_t>(rank);
  StepPart part;
  part.weight = 16.0 + r;
  part.weight_rest = 0.25 + r;
  part.out_of_memory_events = 2 + whole;
  part.failed_size = 100 + whole;
  part.step = 200 + whole;
  part.memory_peak_bytes = k_largest_exact - whole;
  part.touched = {1.0, 0.0, rank == 0 ? 1.0 : 0.0};
  return part;
}

template <typename Part>
std::vector<double> added(const std::vector<Part>& parts) {
  std::vector<double> sums;
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    const std::vector<double> numbers = packed(parts[rank], rank, parts.size());
    sums.resize(numbers.size(), 0.0);
    for (std::size_t i = 0; i < numbers.size(); ++i) sums[i] += numbers[i];
  }
  return sums;
}

StepSums sums_of(const std::vector<StepPart>& parts) {
  return unpacked(added(parts), parts.size());
}

TEST(StepSumsTest, what_ranks_pack_is_read_again_by_each) {
  for (std::size_t num_ranks = 1; num_ranks <= 4; ++num_ranks) {
    std::vector<StepPart> parts;
    StepSums expected;
    for (std::size_t rank = 0; rank < num_ranks; ++rank) {
      parts.push_back(part_of(rank));
      expected.weight += parts[rank].weight + parts[rank].weight_rest;
      expected.out_of_memory_events += parts[rank].out_of_memory_events;
    }
    const StepSums found = sums_of(parts);
    EXPECT_EQ(found.weight, expected.weight);
    EXPECT_EQ(found.out_of_memory_events, expected.out_of_memory_events);
    for (std::size_t rank = 0; rank < num_ranks; ++rank) {
      EXPECT_EQ(found.failed_sizes.at(rank), parts[rank].failed_size);
      EXPECT_EQ(found.steps.at(rank), parts[rank].step);
      EXPECT_EQ(found.memory_peak_bytes.at(rank), parts[rank].memory_peak_bytes);
    }
    EXPECT_EQ(found.touched, (std::vector<double>{static_cast<double>(num_ranks), 0.0, 1.0}));
  }
}

TEST(StepSumsTest, a_flag_of_any_rank_is_that_of_all_and_of_no_other) {
  bool StepPart::*const given[] = {&StepPart::stop_requested, &StepPart::save_due, &StepPart::failed,
                                   &StepPart::discard, &StepPart::has_news};
  bool StepSums::*const read[] = {&StepSums::stop_requested, &StepSums::save_due, &StepSums::failed, &StepSums::discard,
                                  &StepSums::has_news};
  for (std::size_t set = 0; set < 5; ++set) {
    for (std::size_t rank = 0; rank < 3; ++rank) {
      std::vector<StepPart> parts(3);
      parts[rank].*given[set] = true;
      const StepSums found = sums_of(parts);
      for (std::size_t flag = 0; flag < 5; ++flag)
        EXPECT_EQ(found.*read[flag], flag == set) << "flag " << flag << " of rank " << rank;
    }
  }
}

TEST(StepFiguresTest, are_summed_and_kept_apart_and_the_norm_is_rank_0s) {
  for (std::size_t num_ranks = 1; num_ranks <= 4; ++num_ranks) {
    std::vector<StepFigures> parts;
    double loss = 0.0;
    for (std::size_t rank = 0; rank < num_ranks; ++rank) {
      const auto r = static_cast<double>(rank);
      parts.push_back({.loss = 0.5 + r,
                       .grad_norm = 7.0 - r,
                       .compute_seconds = 0.25 + r,
                       .comm_seconds = 0.125 + r,
                       .data_wait_seconds = 0.0625 * r});
      loss += 0.5 + r;
    }
    const SummedFigures found = unpacked_figures(added(parts), num_ranks);
    EXPECT_EQ(found.loss, loss);
    EXPECT_EQ(found.grad_norm, 7.0);
    EXPECT_FALSE(found.failed);
    ASSERT_EQ(found.compute_seconds.size(), num_ranks);
    ASSERT_EQ(found.comm_seconds.size(), num_ranks);
    for (std::size_t rank = 0; rank < num_ranks; ++rank) {
      EXPECT_EQ(found.compute_seconds[rank], parts[rank].compute_seconds);
      EXPECT_EQ(found.data_wait_seconds[rank], parts[rank].data_wait_seconds);
      EXPECT_EQ(found.comm_seconds[rank], parts[rank].comm_seconds);
      parts[rank].failed = true;
      EXPECT_TRUE(unpacked_figures(added(parts), num_ranks).failed) << rank;
      parts[rank].failed = false;
    }
  }
}

TEST(StepFiguresTest, what_is_not_a_number_stays_so) {
  std::vector<StepFigures> parts(2);
  parts[1].loss = NAN;
  EXPECT_TRUE(std::isnan(unpacked_figures(added(parts), 2).loss));
  EXPECT_EQ(unpacked_figures(added(parts), 2).grad_norm, 0.0);
  parts[0].grad_norm = NAN;
  EXPECT_TRUE(std::isnan(unpacked_figures(added(parts), 2).grad_norm));
}

}  // namespace
}  // namespace onebatch
