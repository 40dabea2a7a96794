// Images a second that a data set of image files gives, read by so many threads: image_bench FOLDER HEIGHT WIDTH
// THREADS SECONDS. Each reads micro-batches of 32 with random resized crops and flips. See bench/images.py.
#include "trainer/data/dataset_kind.hpp"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace onebatch {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::int64_t k_batch = 32;

void read_until(const Dataset& data, Clock::time_point end, std::atomic<std::int64_t>& next,
                std::atomic<std::int64_t>& read) {
  while (Clock::now() < end) {
    std::vector<std::int64_t> samples(k_batch);
    const std::int64_t first = next.fetch_add(k_batch);
    for (std::size_t i = 0; i < samples.size(); ++i) samples[i] = (first + static_cast<std::int64_t>(i)) % data.size();
    if (data.read_changed(samples, at::kFloat, {1, first / data.size()}).inputs.front().size(0) != k_batch)
      std::abort();
    read += k_batch;
  }
}

double images_a_second(const Dataset& data, int threads, double seconds) {
  std::atomic<std::int64_t> next = 0;
  std::atomic<std::int64_t> read = 0;
  const auto begin = Clock::now();
  const auto end = begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  std::vector<std::jthread> readers;
  for (int i = 0; i < threads; ++i) readers.emplace_back([&] { read_until(data, end, next, read); });
  readers.clear();
  return static_cast<double>(read) / std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace
}  // namespace onebatch

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  onebatch::DatasetConfiguration data;
  data.kind = "image_folder";
  data.path = argv[1];
  data.image_size = {std::atoll(argv[2]), std::atoll(argv[3])};
  onebatch::OpenRequest request{onebatch::Split::train, 1, {}};
  request.augment.random_resized_crop = true;
  request.augment.horizontal_flip = true;
  const auto opened = onebatch::open_dataset(data, request);
  std::printf("%.1f\n", onebatch::images_a_second(*opened, std::atoi(argv[4]), std::atof(argv[5])));
}
