// What a GPU has to tell of a step, read when it has begun the next one: the host does not wait for it to be done.
//
// Note [Figures a step late]. A step's loss and gradient norm lie on the device when the host has put the step there.
// Who reads them at once leaves the device without work until the next step's kernels come. So they are copied to
// pinned memory behind the update, and read after the next step was put there. What is done with them at once
// otherwise is done so:
//  * No update from a gradient that is not finite: the optimizer's kernels look at a flag on the device, which the norm
//    sets. It stays set, so what follows changes nothing either, and the step can be done again from where it began,
//    reading at once: see TrainingStep::forget_late().
//  * Whatever looks at the state between steps (a checkpoint, validation, a comparison of replicas), a signal, an
//    error and the last step are preceded by reading what is left.
//  * Where the host needs the norm (clipping by it, a loss scale), where the model tells the samples' weight, and where
//    ranks have to agree, nothing is late.
#pragma once

#include "trainer/step/step_runner.hpp"
#include "trainer/step/step_sums.hpp"

#include <c10/core/Event.h>

#include <deque>
#include <optional>

namespace onebatch {

class LateFigures {
 public:
  struct OfOneStep {
    LocalSums sums;
    std::shared_ptr<const DeviceMoment> computed;  // where the device has done its micro-batches
    std::shared_ptr<const DeviceMoment> reduced;   // and where the gradient is that of all ranks
  };

  /// Before a step's update: what is unread of it, with its gradient's norm (float64 [1]), is copied to the host. Where
  /// the norm is not finite, the device sets left_out().
  void leave(OfOneStep step, at::Tensor norm);

  /// Float32 scalar on the device: 1 from the first norm on that was not finite, until forget().
  [[nodiscard]] const at::Tensor& left_out() const { return left_out_; }
  [[nodiscard]] bool empty() const { return unread_.empty(); }
  /// The earliest step's that is left. Waits until the device has come to its copy.
  StepFigures take();
  /// Of all that is left nothing is read.
  void forget();

 private:
  struct Unread {
    OfOneStep step;
    at::Tensor numbers;                 // in pinned memory: float64, those of the sums and then the norm
    std::optional<c10::Event> arrived;  // none: on a CPU they are there
  };

  at::Tensor left_out_;
  at::Tensor one_;
  std::deque<Unread> unread_;
};

}  // namespace onebatch
