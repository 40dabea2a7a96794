// A step's work as graphs of the device: one for each part between two meetings with other ranks.
#pragma once

#include "trainer/data/dataset.hpp"
#include "trainer/device/device_graph.hpp"
#include "trainer/step/meetings.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace onebatch {

enum class WorkKind { micro_step, round };

/// What a rank's device does of a step without a host that looks, but where it meets others.
struct StepWork {
  WorkKind kind = WorkKind::micro_step;
  std::vector<std::int64_t> others =
      {};                      // counts of all ranks, where rounds that are apart in these are recorded apart
  std::vector<Batch> batches;  // on the device
  /// Of batches of the same shapes. Adds their gradient to the flat one and their loss and weight to StepNumbers;
  /// changes nothing else of the host's. `keys`: of each batch ForwardContext's, which stays undefined where no layer
  /// draws by it. May run more than once within the step that it was made for.
  std::function<void(std::vector<Batch>, std::vector<at::Tensor>& keys, Meetings&)> run;
  /// A batch's noise_key().
  std::function<at::Tensor(std::size_t)> key;
};

class RecordedWork {
 public:
  /// Records work of such batches that draws by keys at these places and met `notes` when it ran. `work.batches` need
  /// no memory. Throws as DeviceGraphs::record() does.
  RecordedWork(DeviceGraphs& graphs, const StepWork& work, std::vector<at::Tensor> keys, const Notes& notes,
               c10::Device device);

  [[nodiscard]] bool meets_nobody() const { return parts_.size() == 1; }
  /// What the next replay is of.
  void take(const StepWork& work);
  /// False where the other ranks' counts are others than they were: then nothing but forwards has run. `notes`: what
  /// was met.
  [[nodiscard]] bool replay(Meetings& with, Notes& notes);

 private:
  // From one meeting to the next.
  struct Part {
    std::unique_ptr<DeviceGraph> graph;
    bool begins_last_backwards = false;
    std::vector<std::size_t> final_parameters;
    std::optional<Packed> sends;  // none: the last
    std::vector<double> met;      // when it was recorded: counts are to be the same again
    at::Tensor place;             // for what is met
  };
  class Recorder;

  std::vector<Batch> batches_;
  std::vector<at::Tensor> keys_;
  std::vector<Part> parts_;
};

/// A tensor for each of the batch's, in its layout; on kMeta without memory, else zeros.
Batch place_for(const Batch& batch, c10::Device device);
void copy_batch(const Batch& to, const Batch& from);

}  // namespace onebatch
