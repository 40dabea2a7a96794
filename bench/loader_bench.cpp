// Reading alone: samples a second by number of workers, of random images with augmentation, and what a hand-over from
// thread to thread costs.
#include "trainer/data/augment.hpp"
#include "trainer/data/read_ahead.hpp"
#include "trainer/data/sample_order.hpp"
#include "trainer/device/precision.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

using namespace onebatch;

namespace {

using Clock = std::chrono::steady_clock;

struct Case {
  const char* name;
  std::vector<std::int64_t> shape;
  std::int64_t micro_batch_size;
  std::int64_t micro_batches;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Whoever takes does nothing else.
double samples_per_second(const Dataset& data, const Case& what, std::int64_t workers) {
  AugmentConfiguration augment;
  augment.crop_padding = 4;
  augment.horizontal_flip = true;
  const auto read = [&](const ReadRequest& request) {
    return read_of(TrainingData(data, augment, {7, request.epoch}), request.samples, at::kFloat, request.length);
  };
  const std::vector<std::int64_t> order = epoch_order(1, 0, data.size());
  std::vector<ReadRequest> requests;
  for (std::int64_t i = 0; i < what.micro_batches; ++i)
    requests.push_back({std::span(order).subspan(static_cast<std::size_t>(i * what.micro_batch_size),
                                                 static_cast<std::size_t>(what.micro_batch_size)),
                        0, 0});
  Loader loader(read, {.set_up = [] { use_one_thread_here(); }});
  loader.add_workers(workers);
  const auto start = Clock::now();
  loader.announce(requests);
  for (const ReadRequest& request : requests) {
    if (!loader.take(request)) read(request);
  }
  return static_cast<double>(what.micro_batch_size * what.micro_batches) / seconds_since(start);
}

// Of batches of nothing that lie ready.
double hand_over_microseconds() {
  constexpr std::int64_t k_batches = 20000;
  Loader loader([](const ReadRequest&) { return Batch(); }, {});
  loader.add_workers(1);
  const std::vector<std::int64_t> sample = {0};
  double seconds = 0.0;
  for (std::int64_t i = 0; i < k_batches; ++i) {
    const ReadRequest request{sample, i, 0};
    const auto start = Clock::now();
    loader.announce({&request, 1});
    seconds += seconds_since(start);
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    const auto begin = Clock::now();
    loader.take(request);
    seconds += seconds_since(begin);
  }
  return seconds / k_batches * 1e6;
}

}  // namespace

int main() {
  at::set_num_threads(1);
  const std::vector<Case> cases = {{"[1, 8, 8], 256", {1, 8, 8}, 256, 400},
                                   {"[3, 32, 32], 256", {3, 32, 32}, 256, 100},
                                   {"[3, 224, 224], 32", {3, 224, 224}, 32, 12}};
  std::printf("a hand-over: %.1f us\n\n| images | workers | samples/s |\n| --- | --- | --- |\n",
              hand_over_microseconds());
  for (const Case& what : cases) {
    DatasetConfiguration images;
    images.kind = "synthetic";
    images.shape = what.shape;
    images.size = what.micro_batch_size * what.micro_batches;
    const auto data = open_dataset(images, Split::train, 1);
    for (const std::int64_t workers : {0, 1, 2, 4}) {
      double best = 0.0;
      for (int i = 0; i < 3; ++i) best = std::max(best, samples_per_second(*data, what, workers));
      std::printf("| %s | %ld | %.0f |\n", what.name, static_cast<long>(workers), best);
    }
  }
  return 0;
}
