// Whether native code is quicker.
#include "comm/statistics.hpp"
#include "comm/stopwatch.hpp"
#include "trainer/data/augment.hpp"
#include "trainer/device/failed_backward.hpp"
#include "trainer/models/compiled_program.hpp"
#include "trainer/replica/train_micro_batch.hpp"
#include "trainer/run/compiled_trial_parts.hpp"
#include "trainer/run/compiled_trials.hpp"
#include "trainer/step/accumulation.hpp"

#include <algorithm>
#include <functional>
#include <vector>

namespace onebatch {
namespace {

constexpr std::size_t k_least_pairs = 3;  // of micro-batches that are timed
constexpr std::size_t k_pairs = 9;
constexpr std::size_t k_most_pairs = 201;
constexpr double k_short_seconds = 0.5;  // of which quick ones fill at least so many
constexpr double k_long_seconds = 15.0;  // then fewer pairs are enough
constexpr std::int64_t k_least_of_validation = 3;
constexpr std::int64_t k_together = 2;  // micro-batches that share statistics

bool is_enough(std::size_t pairs, double seconds) {
  if (pairs < k_pairs) return pairs >= k_least_pairs && seconds >= k_long_seconds;
  return pairs >= k_most_pairs || seconds >= k_short_seconds;
}

// Both work in turn.
struct Work {
  std::function<double()> seconds;
  std::function<double()> seconds_uncompiled;
  std::size_t samples;
};

CompiledTimes times_of(const Work& work) {
  work.seconds_uncompiled();
  work.seconds();
  std::vector<double> plain;
  std::vector<double> ratios;
  const comm::Stopwatch watch;
  while (!is_enough(plain.size(), watch.seconds())) {
    const bool compiled_first = plain.size() % 2 == 1;
    const double before = compiled_first ? work.seconds() : 0.0;
    plain.push_back(work.seconds_uncompiled());
    ratios.push_back((compiled_first ? before : work.seconds()) / plain.back());
  }
  return {static_cast<double>(work.samples) / comm::median(plain), comm::median(ratios)};
}

// By fewer samples where memory is short.
CompiledTimes times_of_fitting(Replica& replica, const Dataset& data, std::int64_t micro_batch_size, std::int64_t least,
                               const std::function<CompiledTimes(std::int64_t)>& time) {
  for (std::int64_t size = std::min(std::max(micro_batch_size, least), data.size());;
       size = std::max(least, size / 2)) {
    CompiledTimes times;
    if (fits(replica.device, [&] { times = time(size); })) return times;
    if (size <= least) return {};
  }
}

class Timing {
 public:
  Timing(const MicroBatchRunner& runner, const Dataset& data, std::int64_t size)
      : runner_(runner),
        replica_(runner.replica()),
        data_(data, replica_.augment, {replica_.seed, 0}),
        together_(replica_.shares_statistics ? k_together : 1),
        samples_(first_samples(size * together_, data)) {
    if (!replica_.shares_statistics) batch_ = batch_of(replica_, data, samples_);
  }

  CompiledTimes run() const {
    const KeptWeights kept(replica_);
    replica_.gradients.begin_step();
    return times_of({[this] { return seconds(); }, [this] { return seconds_uncompiled(); }, samples_.size()});
  }

 private:
  double seconds() const {
    replica_.device.synchronize();
    const comm::Stopwatch watch;
    double waited = 0.0;  // for samples
    if (replica_.shares_statistics)
      waited = accumulate_gradient(runner_, data_, samples_, in_parts(), 1).data_wait_seconds;
    else
      train_micro_batch(replica_, batch_, {replica_.seed, 1, samples_}, all_times(1.0, replica_));
    replica_.device.synchronize();
    return watch.seconds() - waited;
  }

  double seconds_uncompiled() const {
    const Uncompiled scope(*compiled_of(*replica_.model));
    return seconds();
  }

  [[nodiscard]] std::vector<MicroBatchRun> in_parts() const {
    const auto number = static_cast<std::int64_t>(samples_.size());
    const std::int64_t size = std::max<std::int64_t>(1, number / together_);
    std::vector<MicroBatchRun> parts = {{size, number / size}};
    if (number % size != 0) parts.push_back({number % size, 1});
    return parts;
  }

  const MicroBatchRunner& runner_;
  Replica& replica_;
  TrainingData data_;
  std::int64_t together_;
  std::vector<std::int64_t> samples_;
  Batch batch_;
};

}  // namespace

CompiledTimes time_compiled(const MicroBatchRunner& runner, const Dataset& data, std::int64_t micro_batch_size) {
  return times_of_fitting(runner.replica(), data, micro_batch_size, 1,
                          [&](std::int64_t size) { return Timing(runner, data, size).run(); });
}

CompiledTimes time_evaluation(Replica& replica, const Dataset& data, std::int64_t micro_batch_size) {
  const InEvaluation evaluation(*replica.model);
  const KeptWeights kept(replica);
  return times_of_fitting(replica, data, micro_batch_size, k_least_of_validation, [&](std::int64_t size) {
    const std::vector<std::int64_t> samples = first_samples(size, data);
    const Batch batch = batch_of(replica, data, samples);
    const auto seconds = [&] {
      replica.device.synchronize();
      const comm::Stopwatch watch;
      replica.forward(batch, {replica.seed, 1, samples});
      replica.device.synchronize();
      return watch.seconds();
    };
    const auto seconds_uncompiled = [&] {
      const Uncompiled scope(*compiled_of(*replica.model));
      return seconds();
    };
    return times_of({seconds, seconds_uncompiled, samples.size()});
  });
}

}  // namespace onebatch
