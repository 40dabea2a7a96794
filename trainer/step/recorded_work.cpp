#include "trainer/step/recorded_work.hpp"

#include "trainer/base/transfer.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <utility>

namespace onebatch {
namespace {

at::Tensor place_for(const at::Tensor& tensor, c10::Device device) {
  const at::Tensor place = at::empty_like(tensor, tensor.options().device(device));
  return device.is_meta() ? place : place.zero_();
}

// Each slot begins with its count.
bool has_other_counts(const Packed& sent, const std::vector<double>& found, const std::vector<double>& expected) {
  if (found.size() != expected.size()) return true;
  if (sent.counts.empty()) return false;
  for (std::size_t i = 0; i < found.size(); i += sent.width()) {
    if (found[i] != expected[i]) return true;
  }
  return false;
}

}  // namespace

Batch place_for(const Batch& batch, c10::Device device) {
  Batch place;
  for (const at::Tensor& input : batch.inputs) place.inputs.push_back(place_for(input, device));
  if (batch.targets.defined()) place.targets = place_for(batch.targets, device);
  if (batch.weights.defined()) place.weights = place_for(batch.weights, device);
  return place;
}

void copy_batch(const Batch& to, const Batch& from) {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> places = to.tensors();
  const std::vector<at::Tensor> tensors = from.tensors();
  for (std::size_t i = 0; i < places.size(); ++i) places[i].copy_(tensors[i], /*non_blocking=*/true);
}

// Ends a graph at each meeting, where it hands out what was met before: numbers that stand for those of a replay.
class RecordedWork::Recorder final : public Meetings {
 public:
  Recorder(std::vector<Part>& parts, const DeviceGraphs::Cut& cut) : parts_(parts), cut_(cut) {
    for (Part& part : parts_) part.final_parameters.clear();  // of graphs that are played by running the work again
  }

  Met meet(const Packed& mine, const at::Tensor& /*place*/) override {
    Part& part = parts_.at(now_);
    if (now_ + 1 >= parts_.size()) throw std::logic_error("an exchange that was not made before");
    part.sends = mine;
    cut_();
    ++now_;
    return {{}, part.met, part.place};
  }
  void begin_last_backwards() override { parts_.at(now_).begins_last_backwards = true; }
  void is_final(std::size_t parameter) override { parts_.at(now_).final_parameters.push_back(parameter); }
  [[nodiscard]] bool tells() const override { return true; }

 private:
  std::vector<Part>& parts_;
  const DeviceGraphs::Cut& cut_;
  std::size_t now_ = 0;
};

RecordedWork::RecordedWork(DeviceGraphs& graphs, const StepWork& work, std::vector<at::Tensor> keys, const Notes& notes,
                           c10::Device device)
    : keys_(std::move(keys)), parts_(notes.size() + 1) {
  for (const Batch& batch : work.batches) batches_.push_back(place_for(batch, device));
  for (std::size_t i = 0; i < notes.size(); ++i) {
    parts_[i].met = notes[i].numbers;
    parts_[i].place =
        at::empty({static_cast<std::int64_t>(notes[i].numbers.size())}, at::TensorOptions(at::kDouble).device(device));
  }
  auto made = graphs.record([this, run = work.run](const DeviceGraphs::Cut& cut) {
    Recorder recorder(parts_, cut);
    run(batches_, keys_, recorder);
  });
  if (made.size() != parts_.size()) throw std::logic_error("not all exchanges are made that were made before");
  for (std::size_t i = 0; i < made.size(); ++i) parts_[i].graph = std::move(made[i]);
}

void RecordedWork::take(const StepWork& work) {
  for (std::size_t i = 0; i < batches_.size(); ++i) {
    copy_batch(batches_[i], work.batches[i]);
    if (keys_[i].defined()) upload_into(keys_[i], work.key(i));
  }
}

bool RecordedWork::replay(Meetings& with, Notes& notes) {
  for (const Part& part : parts_) {
    part.graph->replay();
    if (part.begins_last_backwards) with.begin_last_backwards();
    for (const std::size_t parameter : part.final_parameters) with.is_final(parameter);
    if (!part.sends) break;
    notes.push_back(with.meet(*part.sends, part.place));
    if (has_other_counts(*part.sends, notes.back().numbers, part.met)) return false;
  }
  return true;
}

}  // namespace onebatch
