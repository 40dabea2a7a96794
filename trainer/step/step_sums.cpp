#include "trainer/step/step_sums.hpp"

#include <algorithm>

namespace onebatch {
namespace {

// First what is summed; then, for each rank, what it alone fills in; then a number for each parameter.
enum Slot : std::size_t {
  k_weight,
  k_weight_rest,
  k_stop,
  k_save,
  k_failed,
  k_discard,
  k_news,
  k_out_of_memory,
  k_first_per_rank
};
enum PerRank : std::size_t { k_step, k_failed_size, k_memory_peak, k_num_per_rank };

// Of the figures: these, and then three for each rank.
enum Figure : std::size_t { k_loss, k_has_failed, k_grad_norm, k_num_figures };

std::size_t place_of(std::size_t rank, PerRank what) {
  return k_first_per_rank + rank * k_num_per_rank + what;
}

std::size_t first_touched(std::size_t num_ranks) {
  return place_of(num_ranks, k_step);
}

double flag(bool set) {
  return set ? 1.0 : 0.0;
}

std::int64_t whole(double number) {
  return static_cast<std::int64_t>(number);
}

}  // namespace

std::vector<double> packed(const StepPart& part, std::size_t rank, std::size_t num_ranks) {
  std::vector<double> numbers(first_touched(num_ranks), 0.0);
  numbers[k_weight] = part.weight;
  numbers[k_weight_rest] = part.weight_rest;
  numbers[k_stop] = flag(part.stop_requested);
  numbers[k_save] = flag(part.save_due);
  numbers[k_failed] = flag(part.failed);
  numbers[k_discard] = flag(part.discard);
  numbers[k_news] = flag(part.has_news);
  numbers[k_out_of_memory] = static_cast<double>(part.out_of_memory_events);
  numbers[place_of(rank, k_step)] = static_cast<double>(part.step);
  numbers[place_of(rank, k_failed_size)] = static_cast<double>(part.failed_size);
  numbers[place_of(rank, k_memory_peak)] = static_cast<double>(part.memory_peak_bytes);
  numbers.insert(numbers.end(), part.touched.begin(), part.touched.end());
  return numbers;
}

StepSums unpacked(std::span<const double> sums, std::size_t num_ranks) {
  StepSums all;
  all.weight = sums[k_weight] + sums[k_weight_rest];
  all.stop_requested = sums[k_stop] > 0.0;
  all.save_due = sums[k_save] > 0.0;
  all.failed = sums[k_failed] > 0.0;
  all.discard = sums[k_discard] > 0.0;
  all.has_news = sums[k_news] > 0.0;
  all.out_of_memory_events = whole(sums[k_out_of_memory]);
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    all.steps.push_back(whole(sums[place_of(rank, k_step)]));
    all.failed_sizes.push_back(whole(sums[place_of(rank, k_failed_size)]));
    all.memory_peak_bytes.push_back(whole(sums[place_of(rank, k_memory_peak)]));
  }
  const auto touched = sums.subspan(first_touched(num_ranks));
  all.touched.assign(touched.begin(), touched.end());
  return all;
}

std::vector<double> packed(const StepFigures& figures, std::size_t rank, std::size_t num_ranks) {
  std::vector<double> numbers(k_num_figures + 3 * num_ranks, 0.0);
  numbers[k_loss] = figures.loss;
  numbers[k_has_failed] = flag(figures.failed);
  if (rank == 0) numbers[k_grad_norm] = figures.grad_norm;
  numbers[k_num_figures + rank] = figures.compute_seconds;
  numbers[k_num_figures + num_ranks + rank] = figures.comm_seconds;
  numbers[k_num_figures + 2 * num_ranks + rank] = figures.data_wait_seconds;
  return numbers;
}

SummedFigures unpacked_figures(std::span<const double> sums, std::size_t num_ranks) {
  const auto compute = sums.subspan(k_num_figures, num_ranks);
  const auto comm = sums.subspan(k_num_figures + num_ranks, num_ranks);
  const auto data_wait = sums.subspan(k_num_figures + 2 * num_ranks);
  return {sums[k_loss],
          sums[k_has_failed] > 0.0,
          sums[k_grad_norm],
          {compute.begin(), compute.end()},
          {comm.begin(), comm.end()},
          {data_wait.begin(), data_wait.end()}};
}

}  // namespace onebatch
