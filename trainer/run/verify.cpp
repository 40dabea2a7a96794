#include "trainer/run/verify.hpp"

#include "comm/long_work.hpp"
#include "trainer/base/error.hpp"
#include "trainer/batch_norm/running_statistics.hpp"
#include "trainer/data/augment.hpp"
#include "trainer/data/sample_order.hpp"
#include "trainer/device/agreement.hpp"
#include "trainer/device/memory_budget.hpp"
#include "trainer/io/durable_file.hpp"
#include "trainer/io/tensor_file.hpp"
#include "trainer/optim/pace.hpp"
#include "trainer/replica/replica_check.hpp"
#include "trainer/replica/replica_state.hpp"
#include "trainer/step/evaluation.hpp"
#include "trainer/verify/judge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace onebatch {
namespace {

constexpr double k_host_share = 0.7;             // of what the host has to spare, for the reference
constexpr int k_most_attempts = 40;              // of a step that overflows float16
constexpr std::int64_t k_epoch = 0;              // whose random changes of samples are drawn
constexpr std::int64_t k_least_validation = 64;  // samples, or as many as a batch has
// In float64 of what is trained: a model, its gradients of two orders, the run's, and what it began with.
constexpr std::int64_t k_least_copies = 5;
constexpr double k_gibibyte = 1024.0 * 1024.0 * 1024.0;

// The first samples of a data set.
class Beginning final : public Dataset {
 public:
  Beginning(const Dataset& whole, std::int64_t size) : whole_(whole), size_(std::min(size, whole.size())) {}
  std::int64_t size() const override { return size_; }
  std::vector<std::int64_t> sample_shape() const override { return whole_.sample_shape(); }
  std::int64_t num_classes() const override { return whole_.num_classes(); }
  Batch gather(std::span<const std::int64_t> indices, at::ScalarType type) const override {
    return whole_.gather(indices, type);
  }
  Batch gather_cut(std::span<const std::int64_t> indices, at::ScalarType type, std::int64_t length) const override {
    return whole_.gather_cut(indices, type, length);
  }
  Batch read(std::span<const std::int64_t> indices, at::ScalarType type) const override {
    return whole_.read(indices, type);
  }
  std::span<const std::int64_t> lengths() const override {
    const auto all = whole_.lengths();
    return all.empty() ? all : all.first(static_cast<std::size_t>(size_));
  }

 private:
  const Dataset& whole_;
  std::int64_t size_;
};

// What one sample's activations take in fp64, by the probe's peaks; the largest batch that the host can hold at once.
std::int64_t largest_reference(const VerifyParts& parts, const ClusterProfile& profile) {
  const RankProfile& rank = profile.ranks.front();
  const double per_sample = static_cast<double>(std::max<std::int64_t>(0, rank.peak_bytes - rank.resident_bytes)) /
                            static_cast<double>(std::max<std::int64_t>(1, rank.largest_micro_batch));
  const bool sixteen_bits = parts.replica.autocast || at::isReducedFloatingType(parts.replica.type);
  const double widening = parts.replica.type == at::kDouble ? 1.0 : sixteen_bits ? 4.0 : 2.0;
  const double fixed = widening * static_cast<double>(rank.resident_bytes);
  const double room = k_host_share * static_cast<double>(available_host_memory_bytes()) - fixed;
  const double fits = per_sample > 0.0 ? room / (widening * per_sample) : static_cast<double>(INT32_MAX);
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(std::max(1.0, fits)), 1,
                                  parts.configuration.batch.global_batch_size);
}

class Verification {
 public:
  Verification(const VerifyParts& parts, const VerifyOptions& options)
      : parts_(parts),
        options_(options),
        data_(parts.data, parts.replica.augment, {parts.configuration.run.seed, k_epoch}),
        reference_{parts.configuration, data_, parts.replica, parts.runner.apart() != nullptr},
        step_(parts.runner, parts.data, parts.reducer, parts.control, clipping_of(parts.configuration.optimizer),
              parts.graphs) {}

  VerifyReport run() {
    batch_size_ = largest_reference(parts_, parts_.plans.book.profile());
    parts_.control.broadcast(&batch_size_, sizeof(batch_size_), 0);
    batch_size_ = std::min(batch_size_, parts_.data.size());
    parts_.plans.book.plan_in_pattern(batch_size_);
    on_rank_0([&] {
      const std::string why = why_host_is_too_small(*parts_.replica.model, available_host_memory_bytes());
      if (!why.empty()) throw DoesNotFitError(why);
      judge_.emplace(reference_, options_.tolerance);
    });
    SampleOrder order = order_from({});
    pace_.emplace(parts_.configuration, order, 0);
    train("step 1", order.next());
    train("step 2", order.next());
    train_last();
    validate();
    compare_replicas();
    return report();
  }

 private:
  [[nodiscard]] SampleOrder order_from(const OrderPosition& start) const {
    const Configuration& c = parts_.configuration;
    return {c.run.seed, parts_.data.size(), batch_size_, c.batch.last_batch, start, parts_.drawing};
  }

  // The reference is rank 0's, on the host and without the limit of the device that it may play.
  void on_rank_0(const std::function<void()>& work) {
    agree_on_rank_0(parts_.control, [&] {
      const comm::LongWork reference(parts_.control, "the reference of verify");
      const UnlimitedMemory on_the_host(MemoryBudget::install());
      work();
    });
  }

  void train_last() {
    const std::int64_t rest = parts_.data.size() % batch_size_;
    if (rest == 0 || parts_.configuration.batch.last_batch == LastBatch::drop) return;
    const std::int64_t consumed = parts_.data.size() - rest;
    train(fmt::format("last batch of {}", rest), order_from({0, consumed, consumed}).next());
  }

  void train(const std::string& where, std::vector<std::int64_t> samples) {
    const Configuration& c = parts_.configuration;
    TrainedBatch batch;
    batch.where = where;
    batch.step = step_number_++;
    batch.plan = parts_.plans.book.plan_of(static_cast<std::int64_t>(samples.size()));
    batch.samples = std::move(samples);
    batch.lr = pace_->learning_rate(std::min(batch.step, pace_->total_steps() - 1));
    std::optional<ExpectedUpdate> update;
    on_rank_0([&] {
      batch.before = weights_of(*parts_.replica.model);
      if (batch.step == 0) judge_->judge_separation(batch);
      update.emplace(c, parts_.replica);
    });
    batch.totals = run(batch);
    {
      const AveragedStatistics averaged(parts_.replica.own_statistics(), share(batch.plan), parts_.control);
      batch.buffers = copies_of(parts_.replica.model->buffers());
    }
    on_rank_0([&] {
      judge_->judge(batch, *update);
      if (batch.step == 0 && !options_.save_gradient.empty()) save(batch.gradient);
    });
  }

  void save(const std::vector<NamedTensor>& gradient) const {
    write_atomically(options_.save_gradient,
                     [&](const std::filesystem::path& file) { return save_tensors(file, gradient); });
  }

  [[nodiscard]] double share(const Plan& plan) const {
    return static_cast<double>(plan.ranks.at(static_cast<std::size_t>(parts_.control.rank())).samples);
  }

  // A step that overflows float16 is done again under the next loss scale, as the run's next one would be.
  StepTotals run(TrainedBatch& batch) {
    const StepRequest request{.global_batch = batch.samples,
                              .epoch = k_epoch,
                              .plan = batch.plan,
                              .lr = batch.lr,
                              .step = batch.step,
                              .on_gradient = [&] { batch.gradient = gradient_now(); }};
    for (int attempt = 1;; ++attempt) {
      const StepTotals totals = step_.run(request);
      if (totals.discarded)
        throw AgreedError(ExitCode::does_not_fit,
                          "the plan runs out of memory: is another program using a device? Else raise probe.margin");
      if (!totals.overflowed || !totals.can_go_on || attempt == k_most_attempts) return totals;
    }
  }

  [[nodiscard]] Gradient gradient_now() const {
    Gradient gradient;
    const auto& flat = parts_.replica.gradients;
    for (std::size_t i = 0; i < flat.views().size(); ++i)
      gradient.push_back({flat.parameters()[i].name, as_numbers(flat.views()[i])});
    return gradient;
  }

  void validate() {
    if (parts_.validation == nullptr) return;
    const Beginning data(*parts_.validation, std::max(k_least_validation, batch_size_));
    const Plan& plan = parts_.plans.book.plan_of(batch_size_);
    const RankPlan& mine = plan.ranks.at(static_cast<std::size_t>(parts_.control.rank()));
    EvaluationRequest request{.share = share(plan)};
    if (!mine.micro_batches.empty()) request.micro_batch_size = mine.micro_batches.back().size;
    const AveragedStatistics averaged(parts_.replica.own_statistics(), share(plan), parts_.control);
    const Digest before = digest_of(parts_.replica);
    TrainedValidation found{
        data, data.size(), step_number_, {}, evaluate(request, parts_.replica, data, parts_.control), false};
    int changed = digest_of(parts_.replica) != before ? 1 : 0;
    std::vector<int> all(static_cast<std::size_t>(parts_.control.size()));
    parts_.control.all_gather(&changed, all.data(), sizeof(changed));
    found.model_changed = std::ranges::count(all, 1) > 0;
    on_rank_0([&] {
      found.weights = weights_of(*parts_.replica.model);
      judge_->judge(found);
    });
  }

  void compare_replicas() {
    const auto difference = mend_replicas(parts_.replica, parts_.control);
    on_rank_0([&] {
      if (parts_.control.size() > 1) judge_->judge_replicas(difference ? difference->parameter : "");
    });
  }

  VerifyReport report() {
    VerifyReport report;
    on_rank_0([&] { report = judge_->finish(); });
    int verdict = static_cast<int>(report.verdict);
    parts_.control.broadcast(&verdict, sizeof(verdict), 0);
    report.verdict = static_cast<Verdict>(verdict);
    report.pass = report.verdict == Verdict::pass;
    return report;
  }

  VerifyParts parts_;
  VerifyOptions options_;
  TrainingData data_;
  ReferenceParts reference_;
  TrainingStep step_;
  std::optional<Judge> judge_;  // rank 0's
  std::int64_t batch_size_ = 0;
  std::optional<Pace> pace_;
  std::int64_t step_number_ = 0;
};

}  // namespace

std::string why_host_is_too_small(const Model& model, std::int64_t available_bytes) {
  std::int64_t numbers = 0;
  for (const NamedTensor& one : model.parameters())
    numbers += one.tensor.numel() * (one.tensor.requires_grad() ? k_least_copies : 1);
  const std::int64_t least = numbers * static_cast<std::int64_t>(sizeof(double));
  if (least <= available_bytes) return "";
  return fmt::format(
      "verify holds copies of the model's parameters in float64 in the memory of rank 0's host, more than {:.1f} GiB, "
      "and {:.1f} GiB are free there: start it with rank 0 on a host that has more, or verify a smaller model of the "
      "same layers",
      static_cast<double>(least) / k_gibibyte, static_cast<double>(available_bytes) / k_gibibyte);
}

VerifyReport verify_gradient(const VerifyParts& parts, const VerifyOptions& options) {
  return Verification(parts, options).run();
}

}  // namespace onebatch
