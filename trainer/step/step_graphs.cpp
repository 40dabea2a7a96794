#include "trainer/step/step_graphs.hpp"

#include "trainer/base/transfer.hpp"
#include "trainer/device/agreement.hpp"
#include "trainer/device/failed_backward.hpp"
#include "trainer/step/compared_tensors.hpp"

#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace onebatch {
namespace {

constexpr std::int64_t k_ordinary = 2;      // times that a shape runs before it is recorded
constexpr std::size_t k_most_shapes = 256;  // of sequences of unlike lengths there may be many
constexpr std::int64_t k_most_checks = 20;  // that tell nothing, as of float16 before its scale is found
constexpr std::int64_t k_most_mismatches = 3;
constexpr std::int64_t k_most_forgotten = 3;
constexpr std::int64_t k_most_quiet_steps = 40;
constexpr double k_times_own_error = 4.0;  // that an ordinary micro-step has where its kernels add up in any order

// Of each tensor its type, sizes and strides: other strides may have other kernels.
std::vector<std::int64_t> shape_of(const StepWork& work) {
  std::vector<std::int64_t> shape = {static_cast<std::int64_t>(work.kind),
                                     static_cast<std::int64_t>(work.others.size())};
  shape.insert(shape.end(), work.others.begin(), work.others.end());
  for (const Batch& batch : work.batches) {
    for (const at::Tensor& tensor : batch.tensors()) {
      shape.push_back(static_cast<std::int64_t>(tensor.scalar_type()));
      shape.push_back(tensor.dim());
      shape.insert(shape.end(), tensor.sizes().begin(), tensor.sizes().end());
      shape.insert(shape.end(), tensor.strides().begin(), tensor.strides().end());
    }
  }
  return shape;
}

// With tensors without memory.
StepWork traced(const StepWork& work) {
  StepWork like = {work.kind, work.others, {}, work.run, {}};
  for (const Batch& batch : work.batches) like.batches.push_back(place_for(batch, c10::kMeta));
  return like;
}

// All that this rank has sent.
at::Tensor sent_in(const Notes& notes, c10::Device device) {
  std::vector<double> sent;
  for (const Met& met : notes) sent.insert(sent.end(), met.sent.begin(), met.sent.end());
  return upload(at::tensor(sent, at::kDouble), device);
}

std::string first_line(const std::exception& error) {
  const std::string words = words_of(error);
  return words.substr(0, words.find('\n'));
}

constexpr double k_mebibyte = 1024.0 * 1024.0;

}  // namespace

StepGraphs::StepGraphs(Replica& replica, std::unique_ptr<DeviceGraphs> device)
    : replica_(replica),
      device_(std::move(device)),
      numbers_(StepNumbers::of(replica)),
      factor_(replica.loss_scale.factor()) {}

const StepNumbers& StepGraphs::begin_step() {
  numbers_.loss_sum.zero_();
  numbers_.weight_sum.zero_();
  if (const double factor = replica_.loss_scale.factor(); factor != factor_) numbers_.factor.fill_(factor_ = factor);
  if (is_holding() && have_moved()) release();
  return numbers_;
}

void StepGraphs::run(StepWork work, Meetings& with) {
  OfOneShape* const shape = given_up_ ? nullptr : of(work);
  std::vector<at::Tensor> keys(work.batches.size());
  if (shape == nullptr || shape->is_left_alone || (shape->is_to_be_compared() && with.tells()))
    return work.run(std::move(work.batches), keys, with);
  if (!shape->recorded) return run_and_record(*shape, std::move(work), with);
  shape->recorded->take(work);
  if (!shape->trusted) return check(*shape, std::move(work), with);
  if (shape->recorded->meets_nobody()) work.batches.clear();
  Notes notes;
  if (shape->recorded->replay(with, notes)) {
    shape->mismatches = 0;
    return replica_.gradients.note_reached(shape->reached);
  }
  RepeatedMeetings so_far(notes, replica_.device.device(), &with);
  work.run(std::move(work.batches), keys, so_far);
  others_differ(*shape);
}

StepGraphs::OfOneShape* StepGraphs::of(const StepWork& work) {
  auto shape = shape_of(work);
  if (const auto found = shapes_.find(shape); found != shapes_.end()) return &found->second;
  if (shapes_.size() >= k_most_shapes) return nullptr;
  OfOneShape& made = shapes_[std::move(shape)];
  made.kind = work.kind;
  made.others = work.others;
  for (const Batch& batch : work.batches) made.sizes.push_back(batch.tensors().front().size(0));
  return &made;
}

void StepGraphs::run_and_record(OfOneShape& shape, StepWork work, Meetings& with) {
  Trace trace{traced(work), std::vector<at::Tensor>(work.batches.size()), {}};
  NotedMeetings noted(with, trace.notes);
  work.run(std::move(work.batches), trace.keys, noted);
  if (++shape.ordinary < k_ordinary || with.tells()) return;
  const std::string failure = record(shape, trace);
  if (failure.empty()) return;
  recover_from_out_of_memory(replica_.device);  // and whatever else a backward that threw has left
  give_up(failure);
}

// Empty where it is done. The exception is gone when this returns: it would keep tensors alive.
std::string StepGraphs::record(OfOneShape& shape, const Trace& trace) {
  ComputeDevice& device = replica_.device;
  const NoUploads no_uploads;
  try {
    if (watched_.empty()) watch_addresses();
    // What the ordinary one has taken is free by now: the graph takes as much from the device itself.
    device.synchronize();
    device.empty_cache();
    const std::int64_t before = device.current_bytes();
    const FlatGradients::ListenerPause pause(replica_.gradients);
    replica_.gradients.begin_backward();
    shape.recorded =
        std::make_unique<RecordedWork>(*device_, trace.work, trace.keys, trace.notes, replica_.device.device());
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

void StepGraphs::check(OfOneShape& shape, StepWork work, Meetings& with) {
  std::vector<at::Tensor> before;
  StepWork again = {work.kind, work.others, {}, work.run, {}};  // a forward may change its inputs
  std::vector<at::Tensor> keys(work.batches.size());
  bool fits = true;
  try {
    for (const Batch& batch : work.batches) {
      again.batches.push_back(place_for(batch, replica_.device.device()));
      copy_batch(again.batches.back(), batch);
    }
    before = copies_of(changed_by_the_work());
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    fits = false;
  }
  if (!fits) {
    before.clear();
    again.batches.clear();
    give_up("there is no memory to compare a graph's gradient");
    return work.run(std::move(work.batches), keys, with);
  }
  Notes notes;
  NotedMeetings noted(with, notes);
  work.run(std::move(work.batches), keys, noted);
  const std::string failure = judge(shape, std::move(again), notes, before);
  if (!failure.empty()) give_up(failure);
}

// Afterwards the state is what the ordinary work has made of it, whatever is found.
std::string StepGraphs::judge(OfOneShape& shape, StepWork work, const Notes& notes,
                              const std::vector<at::Tensor>& before) {
  if (shape.reached != replica_.gradients.reached()) return "a backward reaches other parameters than the recorded one";
  const std::vector<at::Tensor> state = changed_by_the_work();
  const c10::Device device = replica_.device.device();
  std::vector<at::Tensor> ordinary;
  try {
    ordinary = copies_of(state);
    if (tells_nothing(state.front(), before.front()))
      return ++shape.checks < k_most_checks ? "" : "the gradients that were to be compared are zero or not finite";
    ordinary.push_back(sent_in(notes, device));
    copy(state, before);
    RepeatedMeetings repeated(notes, device);
    Notes met;
    if (!shape.recorded->replay(repeated, met)) {
      copy(state, ordinary);
      others_differ(shape);
      return "";
    }
    std::vector<at::Tensor> replayed = state;
    replayed.push_back(sent_in(met, device));
    if (!has_same_bits(replayed, ordinary)) {
      const bool is_near = is_as_near(std::move(work), notes, before, ordinary, copies_of(replayed));
      copy(state, ordinary);
      if (!is_near) return "a replay had another gradient than the micro-batch itself";
    }
    trust(shape);
    return "";
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
  }
  recover_from_out_of_memory(replica_.device);
  if (!ordinary.empty()) copy(state, ordinary);
  return "there is no memory to compare a graph's gradient";
}

// Whether a replay is as near to ordinary work as that is to itself: its gradient, and all else.
bool StepGraphs::is_as_near(StepWork work, const Notes& notes, const std::vector<at::Tensor>& before,
                            const std::vector<at::Tensor>& ordinary, const std::vector<at::Tensor>& replayed) {
  const c10::Device device = replica_.device.device();
  std::vector<at::Tensor> again = changed_by_the_work();
  copy(again, before);
  std::vector<at::Tensor> keys(work.batches.size());
  RepeatedMeetings repeated(notes, device);
  Notes met;
  NotedMeetings noted(repeated, met);
  work.run(std::move(work.batches), keys, noted);
  again.push_back(sent_in(met, device));
  const auto part = [](const std::vector<at::Tensor>& tensors, bool is_gradient) {
    return std::vector<at::Tensor>(tensors.begin() + (is_gradient ? 0 : 1),
                                   is_gradient ? tensors.begin() + 1 : tensors.end());
  };
  return std::ranges::all_of(std::array{true, false}, [&](bool is_gradient) {
    const auto mine = part(replayed, is_gradient);
    const auto first = part(ordinary, is_gradient);
    const auto second = part(again, is_gradient);
    return std::min(distance(mine, first), distance(mine, second)) <= k_times_own_error * distance(first, second);
  });
}

void StepGraphs::trust(OfOneShape& shape) {
  shape.trusted = true;
  if (said_) return;
  said_ = true;
  news_.recorded = fmt::format("micro-batches of {} run as CUDA graphs from here on", shape.sizes.front());
}

// A graph for the counts that others have now is worth it, but not where they change all the time.
void StepGraphs::others_differ(OfOneShape& shape) {
  if (++shape.mismatches < k_most_mismatches) return;
  replica_.device.synchronize();
  renew(shape);
  shape.ordinary = 0;
  shape.is_left_alone = ++shape.forgotten >= k_most_forgotten;
  if (!is_holding()) let_go();
}

void StepGraphs::renew(OfOneShape& shape) {
  OfOneShape anew;
  anew.kind = shape.kind;
  anew.others = std::move(shape.others);
  anew.sizes = std::move(shape.sizes);
  anew.ordinary = shape.ordinary;
  anew.forgotten = shape.forgotten;
  anew.is_left_alone = shape.is_left_alone;
  shape = std::move(anew);
}

bool StepGraphs::ask_for_quiet(const std::vector<std::int64_t>& others, const std::vector<std::int64_t>& sizes) {
  if (given_up_ || quiet_steps_ >= k_most_quiet_steps) return false;
  const bool asks = std::ranges::any_of(shapes_, [&](const auto& one) {
    const OfOneShape& shape = one.second;
    return shape.kind == WorkKind::round && shape.others == others && shape.sizes == sizes && !shape.trusted &&
           !shape.is_left_alone && shape.ordinary + 1 >= k_ordinary;
  });
  quiet_steps_ += asks ? 1 : 0;
  return asks;
}

std::vector<at::Tensor> StepGraphs::changed_by_the_work() const {
  std::vector<at::Tensor> state = {replica_.gradients.flat(), numbers_.loss_sum, numbers_.weight_sum};
  for (const NamedTensor& buffer : replica_.model->buffers()) state.push_back(buffer.tensor.detach());
  return state;
}

void StepGraphs::watch_addresses() {
  std::vector<at::Tensor> tensors = {replica_.gradients.flat()};
  for (const auto& group : {replica_.model->parameters(), replica_.model->buffers()}) {
    for (const NamedTensor& one : group) tensors.push_back(one.tensor);
  }
  for (const at::Tensor& tensor : tensors) watched_.push_back({tensor, tensor.const_data_ptr()});
}

bool StepGraphs::have_moved() const {
  return std::ranges::any_of(watched_, [](const Watched& one) { return one.tensor.const_data_ptr() != one.address; });
}

bool StepGraphs::is_holding() const {
  return std::ranges::any_of(shapes_, [](const auto& shape) { return shape.second.recorded != nullptr; });
}

void StepGraphs::release() {
  if (!is_holding()) return;
  replica_.device.synchronize();
  for (auto& [key, shape] : shapes_) renew(shape);
  let_go();
}

// Also where recording has failed: what it was given is there.
void StepGraphs::give_up(const std::string& why) {
  if (given_up_) return;
  given_up_ = true;
  replica_.device.synchronize();
  shapes_.clear();
  let_go();
  news_.given_up = why;
}

void StepGraphs::let_go() {
  device_->release();
  replica_.device.empty_cache();
  watched_.clear();
  pool_bytes_ = 0;
  quiet_steps_ = 0;
}

StepGraphs::News StepGraphs::take_news() {
  return std::exchange(news_, {});
}

}  // namespace onebatch
