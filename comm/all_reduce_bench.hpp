// How fast an all-reduce of float32 is here, against MPI's own, interleaved in one run.
#pragma once

#include "comm/world.hpp"

#include <functional>

namespace onebatch::comm {

/// Medians over repetitions of the slowest rank's time. `algbw` = bytes / seconds, `busbw` = algbw * 2 (n - 1) / n,
/// both GB/s, as nccl-tests define them.
struct AllReduceTiming {
  std::size_t bytes = 0;
  double seconds = 0.0;
  double mpi_seconds = 0.0;              // MPI_Allreduce in one call
  double mpi_best_bucket_seconds = 0.0;  // the best of MPI_Allreduce in buckets of several sizes
  double algbw = 0.0;
  double busbw = 0.0;
  double times_mpi_best_bucket = 0.0;  // median over repetitions of mpi_best_bucket / ours, both of the same repetition
};

/// From 4 B to `most_bytes` by fours, and 100 MiB. Ours goes in buckets of at most 25 MiB. `done` is told of each size
/// on every rank. Collective. In a world of one there is nothing to compare with and MPI's times are 0.
std::vector<AllReduceTiming> bench_all_reduce(World& world, std::size_t most_bytes,
                                              const std::function<void(const AllReduceTiming&)>& done);

}  // namespace onebatch::comm
