#include "comm/all_reduce_bench.hpp"

#include "comm/statistics.hpp"
#include "comm/stopwatch.hpp"

#include <algorithm>
#include <set>

namespace onebatch::comm {
namespace {

constexpr std::size_t k_mebibyte = std::size_t{1} << 20;
constexpr std::size_t k_own_bucket = 25 * k_mebibyte;
constexpr std::size_t k_mpi_buckets[] = {k_mebibyte / 4, k_mebibyte, 4 * k_mebibyte, 16 * k_mebibyte};

void in_buckets(Communicator& communicator, float* data, std::size_t count, std::size_t bucket_bytes) {
  const std::size_t bucket = bucket_bytes / sizeof(float);
  for (std::size_t begin = 0; begin < count; begin += bucket)
    communicator.all_reduce(data + begin, std::min(bucket, count - begin), ScalarType::float32, ReduceOp::sum);
}

class Bench {
 public:
  Bench(World& world, std::size_t most_bytes)
      : world_(world), data_(reinterpret_cast<float*>(world.control().allocate(most_bytes))) {}

  AllReduceTiming run(std::size_t bytes) {
    const std::size_t count = bytes / sizeof(float);
    const int repetitions = bytes >= 64 * k_mebibyte ? 7 : (bytes >= k_mebibyte ? 15 : 31);
    const int calls = bytes <= 4096 ? 50 : (bytes <= k_mebibyte / 4 ? 10 : 1);
    std::vector<std::size_t> buckets = {bytes};
    for (const std::size_t bucket : k_mpi_buckets) {
      if (bucket < bytes) buckets.push_back(bucket);
    }
    std::vector<double> ours, ratios;
    std::vector<std::vector<double>> theirs(buckets.size());
    Communicator* mpi = world_.plain_mpi();
    for (int i = -2; i < repetitions; ++i) {
      const double own = slowest([&] { in_buckets(world_.control(), data_, count, k_own_bucket); }, calls);
      if (i >= 0) ours.push_back(own);
      for (std::size_t b = 0; mpi != nullptr && b < buckets.size(); ++b) {
        const double seconds = slowest([&] { in_buckets(*mpi, data_, count, buckets[b]); }, calls);
        if (i >= 0) theirs[b].push_back(seconds);
      }
    }
    AllReduceTiming timing;
    timing.bytes = bytes;
    timing.seconds = median(ours);
    timing.algbw = timing.seconds > 0.0 ? static_cast<double>(bytes) / timing.seconds * 1e-9 : 0.0;
    timing.busbw = timing.algbw * 2.0 * (world_.size() - 1) / world_.size();
    if (mpi == nullptr) return timing;
    timing.mpi_seconds = median(theirs[0]);
    std::size_t best = 0;
    for (std::size_t b = 1; b < buckets.size(); ++b) best = median(theirs[b]) < median(theirs[best]) ? b : best;
    timing.mpi_best_bucket_seconds = median(theirs[best]);
    for (std::size_t i = 0; i < ours.size(); ++i) ratios.push_back(theirs[best][i] / ours[i]);
    timing.times_mpi_best_bucket = median(ratios);
    return timing;
  }

 private:
  // Seconds of one call, by the slowest rank.
  template <typename Work>
  double slowest(const Work& work, int calls) {
    world_.control().barrier();
    const Stopwatch watch;
    for (int i = 0; i < calls; ++i) work();
    double seconds = watch.seconds() / calls;
    world_.control().all_reduce(&seconds, 1, ScalarType::float64, ReduceOp::max);
    return seconds;
  }

  World& world_;
  // Where the trainer keeps its gradient; the same for both, so that neither finds it colder than the other.
  float* data_;
};

}  // namespace

std::vector<AllReduceTiming> bench_all_reduce(World& world, std::size_t most_bytes,
                                              const std::function<void(const AllReduceTiming&)>& done) {
  std::set<std::size_t> sizes;
  for (std::size_t bytes = sizeof(float); bytes <= most_bytes; bytes *= 4) sizes.insert(bytes);
  if (most_bytes >= 100 * k_mebibyte) sizes.insert(100 * k_mebibyte);
  Bench bench(world, most_bytes);
  std::vector<AllReduceTiming> timings;
  for (const std::size_t bytes : sizes) {
    timings.push_back(bench.run(bytes));
    done(timings.back());
  }
  return timings;
}

}  // namespace onebatch::comm
