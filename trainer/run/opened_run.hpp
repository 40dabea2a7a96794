// What a rank opens by itself before the ranks compute together: data, device, model. Any of it may fail on one rank
// alone.
#pragma once

#include "comm/world.hpp"
#include "trainer/base/session_options.hpp"
#include "trainer/data/run_data.hpp"
#include "trainer/device/agreement.hpp"
#include "trainer/device/compute_device.hpp"
#include "trainer/events/event_stream.hpp"
#include "trainer/models/model.hpp"

#include <memory>

namespace onebatch {

/// What identifies the GPUs that each rank sees; none where it asks for none. Collective.
std::vector<std::vector<std::string>> gpus_of_ranks(const Configuration& configuration, comm::Communicator& control);

/// To predict no targets are needed, and all that the model returns is wanted.
enum class OpenFor { training, prediction };

struct OpenedRun {
  /// Checks that data, model and configuration fit together. `configuration` is referred to. Not collective.
  OpenedRun(const Configuration& configuration, const comm::World& world, const SessionOptions& options,
            EventStream& events, const std::vector<std::vector<std::string>>& gpus,
            OpenFor purpose = OpenFor::training);

  /// What must be the same everywhere before ranks may compute together.
  [[nodiscard]] std::vector<AgreedItem> agreed_items() const;
  /// Runs `make`. Where it runs out of memory: throws DoesNotFitError, which says how much the model takes.
  void refuse_if_out_of_memory(const std::function<void()>& make) const;

  std::shared_ptr<Dataset> data;        // its readers' too
  std::unique_ptr<Dataset> validation;  // may be none
  SampleDrawing drawing;
  std::string given_samples;  // see RunData
  std::unique_ptr<ComputeDevice> device;
  std::unique_ptr<Model> model;  // until a replica has it

 private:
  void open_data();
  void check_training() const;
  // How much model, gradient and optimizer take, once the model is known.
  [[nodiscard]] std::string standing_text() const;

  const Configuration& configuration_;
  std::int64_t parameters_bytes_ = 0;
  std::int64_t trained_bytes_ = 0;  // of those that are trained
};

}  // namespace onebatch
