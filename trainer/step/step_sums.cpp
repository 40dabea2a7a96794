#include "trainer/step/step_sums.hpp"

#include <algorithm>

namespace onebatch {
namespace {

// First what is summed; then, for each rank, what it alone fills in; then a number for each parameter.
enum Slot : std::size_t {
  k_loss,
  k_weight,
  k_stop,
  k_save,
  k_failed,
  k_discard,
  k_news,
  k_out_of_memory,
  k_first_per_rank
};
enum PerRank : std::size_t { k_step, k_failed_size, k_compute_seconds, k_comm_seconds, k_memory_peak, k_num_per_rank };

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
  numbers[k_loss] = part.loss;
  numbers[k_weight] = part.weight;
  numbers[k_stop] = flag(part.stop_requested);
  numbers[k_save] = flag(part.save_due);
  numbers[k_failed] = flag(part.failed);
  numbers[k_discard] = flag(part.discard);
  numbers[k_news] = flag(part.has_news);
  numbers[k_out_of_memory] = static_cast<double>(part.out_of_memory_events);
  numbers[place_of(rank, k_step)] = static_cast<double>(part.step);
  numbers[place_of(rank, k_failed_size)] = static_cast<double>(part.failed_size);
  numbers[place_of(rank, k_compute_seconds)] = part.compute_seconds;
  numbers[place_of(rank, k_comm_seconds)] = part.comm_seconds;
  numbers[place_of(rank, k_memory_peak)] = static_cast<double>(part.memory_peak_bytes);
  numbers.insert(numbers.end(), part.touched.begin(), part.touched.end());
  return numbers;
}

StepSums unpacked(std::span<const double> sums, std::size_t num_ranks) {
  StepSums all;
  all.loss = sums[k_loss];
  all.weight = sums[k_weight];
  all.stop_requested = sums[k_stop] > 0.0;
  all.save_due = sums[k_save] > 0.0;
  all.failed = sums[k_failed] > 0.0;
  all.discard = sums[k_discard] > 0.0;
  all.has_news = sums[k_news] > 0.0;
  all.out_of_memory_events = whole(sums[k_out_of_memory]);
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    all.steps.push_back(whole(sums[place_of(rank, k_step)]));
    all.failed_sizes.push_back(whole(sums[place_of(rank, k_failed_size)]));
    all.compute_seconds.push_back(sums[place_of(rank, k_compute_seconds)]);
    all.comm_seconds.push_back(sums[place_of(rank, k_comm_seconds)]);
    all.memory_peak_bytes.push_back(whole(sums[place_of(rank, k_memory_peak)]));
  }
  const auto touched = sums.subspan(first_touched(num_ranks));
  all.touched.assign(touched.begin(), touched.end());
  return all;
}

}  // namespace onebatch
