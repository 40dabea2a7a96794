// Everything small that ranks tell each other in a step, packed into numbers that one reduction sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace onebatch {

/// What one rank has to tell of its part of a step.
struct StepPart {
  double weight = 0.0;
  double weight_rest = 0.0;  // what WeightSum keeps beside it
  bool stop_requested = false;
  bool save_due = false;
  bool failed = false;                    // what has failed is said afterwards
  bool discard = false;                   // the step is to be done again
  bool has_news = false;                  // of its graphs, that all are to say together
  std::int64_t out_of_memory_events = 0;  // micro-batches that were split, or that the step is done again for
  std::int64_t failed_size = 0;           // the smallest of those micro-batches; 0: there was none
  std::int64_t step = 0;
  std::int64_t memory_peak_bytes = 0;
  std::vector<double> touched;  // one per parameter: 1 where its gradient was reached
};

/// The same of all ranks. Integers up to 2^53 are exact.
struct StepSums {
  double weight = 0.0;
  bool stop_requested = false;  // by any rank, as are the others
  bool save_due = false;
  bool failed = false;
  bool discard = false;
  bool has_news = false;
  std::int64_t out_of_memory_events = 0;
  std::vector<std::int64_t> failed_sizes;  // per rank, as are the others
  std::vector<std::int64_t> steps;
  std::vector<std::int64_t> memory_peak_bytes;
  std::vector<double> touched;  // more than 0 where any rank has reached the parameter's gradient
};

/// `part` of one of so many ranks, with zeros in the others' places.
[[nodiscard]] std::vector<double> packed(const StepPart& part, std::size_t rank, std::size_t num_ranks);
/// Reads the sum of all ranks' packed parts.
[[nodiscard]] StepSums unpacked(std::span<const double> sums, std::size_t num_ranks);

/// What one rank's device has to tell once the gradient is the global batch's.
struct StepFigures {
  double loss = 0.0;       // summed over its samples
  bool failed = false;     // what has failed is said afterwards
  double grad_norm = 0.0;  // rank 0's counts
  double compute_seconds = 0.0;
  double comm_seconds = 0.0;       // waiting for the gradient's reduction
  double data_wait_seconds = 0.0;  // and for samples
};

/// The same of all ranks.
struct SummedFigures {
  double loss = 0.0;
  bool failed = false;  // on any rank
  double grad_norm = 0.0;
  std::vector<double> compute_seconds;  // per rank
  std::vector<double> comm_seconds;
  std::vector<double> data_wait_seconds;
};

[[nodiscard]] std::vector<double> packed(const StepFigures& figures, std::size_t rank, std::size_t num_ranks);
[[nodiscard]] SummedFigures unpacked_figures(std::span<const double> sums, std::size_t num_ranks);

}  // namespace onebatch
