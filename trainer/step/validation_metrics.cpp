#include "trainer/step/validation_metrics.hpp"

#include "trainer/base/error.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/where.h>
#include <c10/util/accumulate.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace onebatch {
namespace {

// Of outputs that are looked at at once: what is computed of them lies beside them on the device.
constexpr std::int64_t k_most_outputs = std::int64_t{1} << 22;
constexpr std::size_t k_most_sums = 4096;  // gathered at once

template <typename T>
std::vector<T> numbers_of(const at::Tensor& tensor) {
  const at::Tensor host = tensor.to(at::kCPU, c10::CppTypeToScalarType<T>::value).contiguous();
  const T* begin = host.const_data_ptr<T>();
  return {begin, begin + host.numel()};
}

template <typename T>
void append(std::vector<T>& all, const std::vector<T>& some) {
  all.insert(all.end(), some.begin(), some.end());
}

template <typename T>
void keep(std::vector<T>& values, const std::vector<std::int64_t>& kept) {
  if (values.empty()) return;
  for (std::size_t i = 0; i < kept.size(); ++i) values[i] = values[static_cast<std::size_t>(kept[i])];
  values.resize(kept.size());
}

// How many classes come before each label's own, the largest output first and of equal ones the first, as argmax takes
// them. One that is NaN comes last.
at::Tensor places_of(const at::Tensor& rows, const at::Tensor& labels) {
  const at::Tensor own = rows.gather(1, labels.unsqueeze(1));
  const at::Tensor earlier = at::arange(rows.size(1), labels.options()).lt(labels.unsqueeze(1));
  return rows.le(own).logical_not().logical_or_(rows.eq(own).logical_and_(earlier)).sum(1);
}

at::Tensor cross_entropies_of(const at::Tensor& rows, const at::Tensor& labels) {
  return at::logsumexp(rows, {1}).sub(rows.gather(1, labels.unsqueeze(1)).squeeze(1));
}

// In the order of the ranks: every rank gets the same bits.
void sum_over_ranks(std::vector<WideSum>& sums, comm::Communicator& control) {
  if (control.size() == 1) return;
  for (std::size_t begin = 0; begin < sums.size(); begin += k_most_sums) {
    const std::span<WideSum> some = std::span(sums).subspan(begin, std::min(k_most_sums, sums.size() - begin));
    std::vector<WideSum> all(some.size() * static_cast<std::size_t>(control.size()));
    control.all_gather(some.data(), all.data(), some.size_bytes());
    std::ranges::fill(some, WideSum{});
    for (std::size_t i = 0; i < all.size(); ++i) some[i % some.size()].add(all[i]);
  }
}

void sum_over_ranks(std::vector<std::int64_t>& counts, comm::Communicator& control) {
  if (counts.empty()) return;  // on all ranks alike
  control.all_reduce(counts.data(), counts.size(), comm::ScalarType::int64, comm::ReduceOp::sum);
}

std::int64_t most_of_ranks(std::int64_t value, comm::Communicator& control) {
  control.all_reduce(&value, 1, comm::ScalarType::int64, comm::ReduceOp::max);
  return value;
}

// Whether targets have a position for each of the sequence's, and are padded as it is.
bool follow_lengths(const Dataset& data) {
  const auto lengths = data.lengths();
  if (lengths.empty()) return false;
  const auto [shortest, longest] = std::ranges::minmax_element(lengths);
  for (const auto one : {shortest, longest}) {
    const std::int64_t sample = one - lengths.begin();
    const Batch batch = data.gather({&sample, 1}, at::kFloat);
    if (!batch.targets.defined() || batch.targets.dim() < 2 || batch.targets.size(1) != *one) return false;
  }
  return true;
}

bool any_of(const std::vector<Metric>& metrics, std::initializer_list<MetricKind> kinds) {
  return std::ranges::any_of(
      metrics, [&](const Metric& metric) { return std::ranges::find(kinds, metric.kind) != kinds.end(); });
}

bool list_classes(const std::vector<Metric>& metrics) {
  return any_of(metrics, {MetricKind::confusion_matrix, MetricKind::f1_per_class});
}

bool are_of_numbers(const std::vector<Metric>& metrics) {
  return any_of(metrics, {MetricKind::mean_absolute_error, MetricKind::r2});
}

}  // namespace

ValidationMetrics::ValidationMetrics(const ChosenMetrics& chosen, const Loss& loss, const Dataset& data)
    : chosen_(chosen), loss_(loss), classes_(chosen.metrics, loss.num_classes()), numbers_(chosen.metrics) {
  if (are_of_numbers(chosen.metrics)) by_position_ = follow_lengths(data);
}

SeenOutputs ValidationMetrics::look_at(const Replica::Forward& made, const Batch& batch) const {
  if (chosen_.metrics.empty() || loss_.is_the_models()) return {};
  if (!loss_.is_classification()) return look_at_numbers(made.outputs, batch);
  const Loss::ByLabel by_label = loss_.by_label(made.outputs, batch.targets);
  SeenOutputs seen;
  seen.num_outputs = by_label.rows.size(1);
  // Of too many put_into() says it, on all ranks together.
  if (seen.num_outputs <= k_most_listed_classes || !list_classes(chosen_.metrics))
    seen.labels = look_at_labels(by_label, batch);
  return seen;
}

SeenLabels ValidationMetrics::look_at_labels(const Loss::ByLabel& by_label, const Batch& batch) const {
  const auto& [rows, labels] = by_label;
  const at::Tensor counts = labels.ne(loss_.ignore_index());
  const at::Tensor safe = at::where(counts, labels, 0);
  SeenLabels seen;
  const std::int64_t at_once = std::max<std::int64_t>(1, k_most_outputs / std::max<std::int64_t>(1, rows.size(1)));
  for (std::int64_t begin = 0; begin < rows.size(0); begin += at_once) {
    const std::int64_t count = std::min(at_once, rows.size(0) - begin);
    const at::Tensor some = rows.narrow(0, begin, count);
    const at::Tensor own = safe.narrow(0, begin, count);
    if (classes_.needs_predictions()) append(seen.predicted, numbers_of<std::int64_t>(some.argmax(1)));
    if (classes_.needs_places()) append(seen.places, numbers_of<std::int64_t>(places_of(some, own)));
    if (classes_.needs_cross_entropies())
      append(seen.cross_entropies, numbers_of<double>(cross_entropies_of(some, own)));
  }
  seen.labels = numbers_of<std::int64_t>(labels);
  if (batch.weights.defined()) seen.weights = numbers_of<double>(batch.weights);
  const auto kept = numbers_of<std::int64_t>(counts.nonzero().flatten());
  for (auto* list : {&seen.labels, &seen.predicted, &seen.places}) keep(*list, kept);
  for (auto* list : {&seen.cross_entropies, &seen.weights}) keep(*list, kept);
  return seen;
}

SeenOutputs ValidationMetrics::look_at_numbers(const at::Tensor& outputs, const Batch& batch) const {
  const bool classes = batch.targets.scalar_type() == at::kLong;
  const at::Tensor wanted = classes ? at::one_hot(batch.targets, loss_.num_classes()) : batch.targets;
  if (outputs.sizes() != wanted.sizes()) return {.fit = false};
  at::Tensor weights = batch.weights;
  if (weights.defined() && classes) weights = weights.unsqueeze(-1);
  if (wanted.numel() == 0) return {};
  const std::int64_t rows = by_position_ ? wanted.size(0) * wanted.size(1) : wanted.size(0);
  SeenOutputs seen;
  seen.numbers.num_outputs = static_cast<std::size_t>(wanted.numel() / rows);
  seen.numbers.targets = numbers_of<double>(wanted);
  seen.numbers.outputs = numbers_of<double>(outputs);
  if (weights.defined()) seen.numbers.weights = numbers_of<double>(weights.expand(wanted.sizes()));
  return seen;
}

void ValidationMetrics::add(const SeenOutputs& seen) {
  classes_.add(seen.labels);
  fit_ = fit_ && seen.fit;
  num_outputs_ = std::max(num_outputs_, seen.num_outputs);
  numbers_.add(seen.numbers);
}

void ValidationMetrics::check_num_outputs(comm::Communicator& control) const {
  const std::int64_t outputs = most_of_ranks(num_outputs_, control);
  if (outputs == 0) return;  // nothing was looked at
  for (const Metric& metric : chosen_.metrics) {
    if (const std::string words = unfit_words(metric, outputs); !words.empty())
      throw AgreedError(
          ExitCode::user_error,
          fmt::format("run.metrics: the model returns {} outputs per label, each of which counts as a class: {}",
                      outputs, words));
  }
}

void ValidationMetrics::sum_classes(comm::Communicator& control) {
  classes_.grow(most_of_ranks(classes_.num_classes(), control));
  ClassSums& sums = classes_.sums();
  std::vector<std::int64_t> counted = {sums.counted};
  for (auto* counts : {&counted, &sums.hits, &sums.right, &sums.labelled, &sums.predicted, &sums.pairs})
    sum_over_ranks(*counts, control);
  sums.counted = counted.front();
  std::vector<WideSum> wide = {sums.cross_entropy, sums.weight};
  sum_over_ranks(wide, control);
  sums.cross_entropy = wide[0];
  sums.weight = wide[1];
}

void ValidationMetrics::sum_numbers(comm::Communicator& control) {
  numbers_.grow(static_cast<std::size_t>(most_of_ranks(static_cast<std::int64_t>(numbers_.num_outputs()), control)));
  std::vector<std::int64_t> rows = {numbers_.rows()};
  sum_over_ranks(rows, control);
  numbers_.rows() = rows.front();
  std::vector<WideSum> wide;
  std::vector<double> bounds;
  for (const NumberSums& one : numbers_.sums())
    append(wide, {one.weight, one.targets, one.squared_targets, one.squared_errors, one.absolute_errors});
  for (const TargetRange& one : numbers_.ranges()) append(bounds, {one.least, -one.most});
  sum_over_ranks(wide, control);
  control.all_reduce(bounds.data(), bounds.size(), comm::ScalarType::float64, comm::ReduceOp::min);
  for (std::size_t i = 0; i < numbers_.num_outputs(); ++i) {
    const WideSum* own = &wide[5 * i];
    numbers_.sums()[i] = {own[0], own[1], own[2], own[3], own[4]};
    numbers_.ranges()[i] = {bounds[2 * i], -bounds[2 * i + 1]};
  }
}

void ValidationMetrics::put_into(EvaluationResult& result, const std::vector<std::string>& class_names,
                                 comm::Communicator& control) {
  if (chosen_.metrics.empty()) return;
  if (loss_.is_the_models()) {
    for (const Metric& metric : chosen_.metrics) result.metrics.push_back({name_of(metric), std::exp(result.loss)});
    return;
  }
  if (loss_.is_classification()) {
    check_num_outputs(control);
    sum_classes(control);
    return classes_.put_into(result, class_names);
  }
  if (most_of_ranks(fit_ ? 0 : 1, control) == 0) {
    sum_numbers(control);
    return numbers_.put_into(result);
  }
  if (chosen_.from == MetricsFrom::configuration)
    throw AgreedError(ExitCode::user_error,
                      "run.metrics: mean_absolute_error and r2 compare outputs with targets, and the model's outputs "
                      "are not of the targets' shape: write run.metrics = [\"loss\"], or let it return that shape");
}

}  // namespace onebatch
