#include "trainer/step/evaluation.hpp"

#include "trainer/data/padding.hpp"
#include "trainer/io/named_tensors.hpp"
#include "trainer/step/validation_metrics.hpp"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

namespace onebatch {
namespace {

struct Sums {
  double loss = 0.0, weight = 0.0, correct = 0.0, counted = 0.0;
};

SeenOutputs add_batch(Sums& sums, const ValidationMetrics& metrics, Replica& replica, const Dataset& data,
                      std::span<const std::int64_t> samples) {
  const auto [batch, weight] = replica.load(data, samples);
  const Replica::Forward made = replica.forward(batch, {replica.seed, 0, samples});
  sums.loss += made.loss.item<double>();
  sums.weight += made.weight.defined() ? made.weight.item<double>() : weight;
  if (replica.loss.is_classification()) {
    const auto [correct, counted] = replica.loss.count_correct(made.outputs, batch.targets);
    sums.correct += correct;
    sums.counted += counted;
  }
  return metrics.look_at(made, batch);
}

// Whether the batch went through; false means that it does not fit.
bool try_batch(Sums& sums, ValidationMetrics& metrics, Replica& replica, const Dataset& data,
               std::span<const std::int64_t> samples) {
  Sums trial = sums;
  SeenOutputs seen;
  try {
    seen = add_batch(trial, metrics, replica, data, samples);
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error) || samples.size() == 1) throw;
    return false;
  }
  sums = trial;
  metrics.add(seen);
  return true;
}

std::size_t divide_up(std::size_t a, std::size_t b) {
  return (a + b - 1) / b;
}

// How far it has come, for who waits.
using Progress = std::function<void(std::size_t done, std::size_t all)>;

Sums sum_over(ValidationMetrics& metrics, Replica& replica, const Dataset& data, std::span<const std::int64_t> samples,
              std::int64_t micro_batch_size, const Progress& progress) {
  Sums sums;
  // Three without gradients take little more than one with them, and any number but one is made of twos and threes.
  auto size = static_cast<std::size_t>(std::max<std::int64_t>(3, micro_batch_size));
  for (std::size_t begin = 0; begin < samples.size();) {
    progress(begin, samples.size());
    // Nearly equal, so that none is left with one sample.
    const std::size_t left = samples.size() - begin;
    const std::size_t count = divide_up(left, divide_up(left, size));
    if (try_batch(sums, metrics, replica, data, samples.subspan(begin, count))) {
      begin += count;
    } else {
      replica.device.empty_cache();
      size = std::max<std::size_t>(1, count / 2);
    }
  }
  return sums;
}

// A layer that normalises by its batch in validation too has nothing to go by in one sample.
void hand_on_single_samples(std::vector<std::int64_t>& counts) {
  for (std::int64_t& count : counts) {
    const auto most = std::ranges::max_element(counts);
    if (count == 1 && &*most != &count) *most += std::exchange(count, 0);
  }
}

std::vector<std::int64_t> my_samples(std::int64_t total, double share, comm::Communicator& control) {
  std::vector<double> shares(static_cast<std::size_t>(control.size()));
  control.all_gather(&share, shares.data(), sizeof(share));
  auto counts = split_by_shares(total, shares);
  hand_on_single_samples(counts);
  const auto rank = static_cast<std::ptrdiff_t>(control.rank());
  std::vector<std::int64_t> samples(static_cast<std::size_t>(counts[static_cast<std::size_t>(rank)]));
  std::iota(samples.begin(), samples.end(), std::accumulate(counts.begin(), counts.begin() + rank, std::int64_t{0}));
  return samples;
}

}  // namespace

std::vector<std::int64_t> split_by_shares(std::int64_t total, const std::vector<double>& shares) {
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  std::vector<std::int64_t> counts;
  double cumulative = 0.0;
  std::int64_t given = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    cumulative += sum > 0.0 ? shares[i] / sum : 1.0 / static_cast<double>(shares.size());
    const std::int64_t upto =
        i + 1 == shares.size() ? total
                               : std::min<std::int64_t>(total, std::llround(cumulative * static_cast<double>(total)));
    counts.push_back(upto - given);
    given = upto;
  }
  return counts;
}

EvaluationResult evaluate(const EvaluationRequest& request, Replica& replica, const Dataset& data,
                          comm::Communicator& control) {
  const at::NoGradGuard no_grad;
  const auto samples = my_samples(data.size(), request.share, control);
  replica.model->set_phase(Phase::evaluation);
  const PaddedTo padded(data, longest_of(data));
  const Progress progress = [&](std::size_t done, std::size_t all) {
    control.set_activity(fmt::format("{}, {} % done", request.what, 100 * done / all));
  };
  const Dataset& read = replica.padding == Padding::global_batch ? padded : data;
  ValidationMetrics metrics(request.metrics, replica.loss, data);
  const SavedTensors buffers(replica.other_buffers());  // of a model that counts its forwards
  const Sums local = sum_over(metrics, replica, read, samples, request.micro_batch_size, progress);
  buffers.restore();
  replica.model->set_phase(Phase::training);
  std::array<double, 4> sums = {local.loss, local.weight, local.correct, local.counted};
  control.all_reduce(sums.data(), sums.size(), comm::ScalarType::float64, comm::ReduceOp::sum);
  EvaluationResult result;
  result.samples = data.size();
  result.loss = sums[1] > 0.0 ? sums[0] / sums[1] : NAN;
  if (replica.loss.is_classification() && sums[3] > 0.0) result.accuracy = sums[2] / sums[3];
  metrics.put_into(result, data.class_names(), control);
  return result;
}

}  // namespace onebatch
