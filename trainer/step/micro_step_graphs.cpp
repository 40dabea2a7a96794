#include "trainer/step/micro_step_graphs.hpp"

#include "trainer/base/transfer.hpp"
#include "trainer/device/agreement.hpp"
#include "trainer/device/failed_backward.hpp"
#include "trainer/replica/train_micro_batch.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace onebatch {
namespace {

constexpr std::int64_t k_ordinary = 2;      // micro-batches of a shape, before it is recorded
constexpr std::size_t k_most_shapes = 256;  // of sequences of unlike lengths there may be many
constexpr std::int64_t k_most_checks = 20;  // that tell nothing, as of float16 before its scale is found
constexpr double k_times_own_error = 4.0;   // that an ordinary micro-step has where its kernels add up in any order

// Of each tensor its type, sizes and strides: other strides may have other kernels.
std::vector<std::int64_t> shape_of(const Batch& batch) {
  std::vector<std::int64_t> shape;
  for (const at::Tensor& tensor : batch.tensors()) {
    shape.push_back(static_cast<std::int64_t>(tensor.scalar_type()));
    shape.push_back(tensor.dim());
    shape.insert(shape.end(), tensor.sizes().begin(), tensor.sizes().end());
    shape.insert(shape.end(), tensor.strides().begin(), tensor.strides().end());
  }
  return shape;
}

Batch place_for(const Batch& batch) {
  Batch place;
  for (const at::Tensor& input : batch.inputs) place.inputs.push_back(at::empty_like(input));
  if (batch.targets.defined()) place.targets = at::empty_like(batch.targets);
  if (batch.weights.defined()) place.weights = at::empty_like(batch.weights);
  return place;
}

void copy(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i], /*non_blocking=*/true);
}

std::vector<at::Tensor> copies_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.clone());
  return copies;
}

at::ScalarType bits_of(const at::Tensor& tensor) {
  switch (tensor.element_size()) {
    case 1: return at::kByte;
    case 2: return at::kShort;
    case 4: return at::kInt;
    default: return at::kLong;
  }
}

// A sum of float64 over the tensors, read at once.
template <typename Term>
double sum_over(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b, Term term) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> sums;
  for (std::size_t i = 0; i < a.size(); ++i) sums.push_back(term(a[i], b[i]).sum(at::kDouble));
  double sum = 0.0;
  for (const double one : read_numbers(at::stack(sums))) sum += one;
  return sum;
}

bool has_same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return sum_over(a, b, [](const at::Tensor& x, const at::Tensor& y) {
           return x.view(bits_of(x)).ne(y.view(bits_of(y)));
         }) == 0.0;
}

double distance(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::sqrt(sum_over(a, b, [](const at::Tensor& x, const at::Tensor& y) {
    return x.to(at::kDouble).sub(y.to(at::kDouble)).square();
  }));
}

// Nothing can be seen from what is not finite, or was not changed.
bool tells_nothing(const at::Tensor& gradient, const at::Tensor& before) {
  const at::NoGradGuard no_grad;
  const std::vector<double> counts = read_numbers(
      at::stack({at::isfinite(gradient).logical_not().sum(at::kDouble), gradient.eq(before).sum(at::kDouble)}));
  return counts[0] > 0.0 || counts[1] == static_cast<double>(gradient.numel());
}

std::string first_line(const std::exception& error) {
  const std::string words = words_of(error);
  return words.substr(0, words.find('\n'));
}

constexpr double k_mebibyte = 1024.0 * 1024.0;

}  // namespace

MicroStepGraphs::MicroStepGraphs(Replica& replica, std::unique_ptr<DeviceGraphs> device)
    : replica_(replica), device_(std::move(device)), factor_(replica.loss_scale.factor()) {
  const auto on_device = at::TensorOptions().device(replica.device.device());
  numbers_.loss_sum = at::zeros({}, on_device.dtype(at::kDouble));
  numbers_.weight_sum = at::zeros({2}, numbers_.loss_sum.options());
  numbers_.factor = all_times(factor_, replica).factor;
}

const MicroStepGraphs::Numbers& MicroStepGraphs::begin_step() {
  numbers_.loss_sum.zero_();
  numbers_.weight_sum.zero_();
  if (const double factor = replica_.loss_scale.factor(); factor != factor_) numbers_.factor.fill_(factor_ = factor);
  if (is_holding() && have_moved()) release();
  return numbers_;
}

void MicroStepGraphs::run(const Batch& batch, const MicroStep& micro_step) {
  OfOneShape* const shape = given_up_ ? nullptr : of(batch);
  if (shape == nullptr) {
    run_ordinary(batch, micro_step);
    return;
  }
  if (!shape->graph) {
    shape->key = run_ordinary(batch, micro_step);
    if (++shape->ordinary >= k_ordinary) record(*shape, batch, micro_step);
    return;
  }
  copy(shape->batch.tensors(), batch.tensors());
  if (shape->key.defined()) upload_into(shape->key, micro_step.key());
  if (!shape->trusted) return check(*shape, batch, micro_step);
  shape->graph->replay();
  replica_.gradients.note_reached(shape->reached);
}

// Returns what its masks were drawn by.
at::Tensor MicroStepGraphs::run_ordinary(const Batch& batch, const MicroStep& micro_step) {
  at::Tensor key;
  micro_step.run(batch, key);
  return key;
}

MicroStepGraphs::OfOneShape* MicroStepGraphs::of(const Batch& batch) {
  auto shape = shape_of(batch);
  if (const auto found = shapes_.find(shape); found != shapes_.end()) return &found->second;
  return shapes_.size() < k_most_shapes ? &shapes_[std::move(shape)] : nullptr;
}

void MicroStepGraphs::record(OfOneShape& shape, const Batch& batch, const MicroStep& micro_step) {
  const std::string failure = record_into(shape, batch, micro_step);
  if (failure.empty()) return;
  recover_from_out_of_memory(replica_.device);  // and whatever else a backward that threw has left
  give_up(failure);
}

// Empty where it is done. The exception is gone when this returns: it would keep tensors alive.
std::string MicroStepGraphs::record_into(OfOneShape& shape, const Batch& batch, const MicroStep& micro_step) {
  ComputeDevice& device = replica_.device;
  const NoUploads no_uploads;
  try {
    shape.batch = place_for(batch);
    copy(shape.batch.tensors(), batch.tensors());
    if (watched_.empty()) watch_addresses();
    // What the ordinary one has taken is free by now: the graph takes as much from the device itself.
    device.synchronize();
    device.empty_cache();
    const std::int64_t before = device.current_bytes();
    const FlatGradients::ListenerPause pause(replica_.gradients);
    replica_.gradients.begin_backward();
    shape.graph = device_->record([&] { micro_step.run(shape.batch, shape.key); });
    shape.reached = replica_.gradients.reached();
    pool_bytes_ += device.current_bytes() - before;
  } catch (const std::exception& error) {
    if (no_uploads.refused()) return "a forward copies from host memory";
    if (is_out_of_memory(error)) return "there is no memory for a graph";
    return "a micro-batch cannot be recorded: " + first_line(error);
  }
  if (device.memory_limit_bytes() - device.current_bytes() >= pool_bytes_) return "";
  return fmt::format("graphs would hold {:.0f} MiB, and not as much is left beside them",
                     static_cast<double>(pool_bytes_) / k_mebibyte);
}

void MicroStepGraphs::check(OfOneShape& shape, const Batch& batch, const MicroStep& micro_step) {
  const std::vector<at::Tensor> state = changed_by_a_micro_step();
  std::vector<at::Tensor> before;
  std::vector<at::Tensor> replayed;
  Batch again;  // a forward may change its inputs
  bool fits = true;
  try {
    again = place_for(batch);
    copy(again.tensors(), batch.tensors());
    before = copies_of(state);
    replayed = copies_of(state);
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    fits = false;
  }
  if (!fits) {
    give_up("there is no memory to compare a graph's gradient");
    run_ordinary(batch, micro_step);
    return;
  }
  shape.graph->replay();
  copy(replayed, state);
  copy(state, before);
  run_ordinary(batch, micro_step);
  const std::string failure = judge(shape, again, micro_step, before, replayed);
  if (!failure.empty()) give_up(failure);
}

// Afterwards the state is that of an ordinary micro-step, whatever is found.
std::string MicroStepGraphs::judge(OfOneShape& shape, const Batch& batch, const MicroStep& micro_step,
                                   const std::vector<at::Tensor>& before, const std::vector<at::Tensor>& replayed) {
  if (shape.reached != replica_.gradients.reached()) return "a backward reaches other parameters than the recorded one";
  const std::vector<at::Tensor> state = changed_by_a_micro_step();
  std::vector<at::Tensor> ordinary;
  try {
    if (tells_nothing(state.front(), before.front()))
      return ++shape.checks < k_most_checks ? "" : "the gradients that were to be compared are zero or not finite";
    if (has_same_bits(state, replayed)) {
      trust(shape, batch);
      return "";
    }
    ordinary = copies_of(state);
    copy(state, before);
    run_ordinary(batch, micro_step);
    const double own = distance(state, ordinary);
    const double found = std::min(distance(replayed, ordinary), distance(replayed, state));
    if (own == 0.0 || !(found <= k_times_own_error * own))
      return "a replay had another gradient than the micro-batch itself";
    trust(shape, batch);
    return "";
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
  }
  recover_from_out_of_memory(replica_.device);
  if (!ordinary.empty()) copy(state, ordinary);
  return "there is no memory to compare a graph's gradient";
}

void MicroStepGraphs::trust(OfOneShape& shape, const Batch& batch) {
  shape.trusted = true;
  if (said_) return;
  said_ = true;
  news_.recorded = fmt::format("micro-batches of {} run as CUDA graphs from here on", batch.tensors().front().size(0));
}

std::vector<at::Tensor> MicroStepGraphs::changed_by_a_micro_step() const {
  std::vector<at::Tensor> state = {replica_.gradients.flat(), numbers_.loss_sum, numbers_.weight_sum};
  for (const NamedTensor& buffer : replica_.model->buffers()) state.push_back(buffer.tensor.detach());
  return state;
}

void MicroStepGraphs::watch_addresses() {
  std::vector<at::Tensor> tensors = {replica_.gradients.flat()};
  for (const auto& group : {replica_.model->parameters(), replica_.model->buffers()}) {
    for (const NamedTensor& one : group) tensors.push_back(one.tensor);
  }
  for (const at::Tensor& tensor : tensors) watched_.push_back({tensor, tensor.const_data_ptr()});
}

bool MicroStepGraphs::have_moved() const {
  return std::ranges::any_of(watched_, [](const Watched& one) { return one.tensor.const_data_ptr() != one.address; });
}

bool MicroStepGraphs::is_holding() const {
  return std::ranges::any_of(shapes_, [](const auto& shape) { return shape.second.graph != nullptr; });
}

void MicroStepGraphs::release() {
  if (!is_holding()) return;
  replica_.device.synchronize();
  for (auto& [sizes, shape] : shapes_) {
    OfOneShape anew;
    anew.ordinary = shape.ordinary;
    shape = std::move(anew);
  }
  watched_.clear();
  pool_bytes_ = 0;
  replica_.device.empty_cache();
}

void MicroStepGraphs::give_up(const std::string& why) {
  if (given_up_) return;
  given_up_ = true;
  release();
  shapes_.clear();
  news_.given_up = why;
}

MicroStepGraphs::News MicroStepGraphs::take_news() {
  return std::exchange(news_, {});
}

}  // namespace onebatch
