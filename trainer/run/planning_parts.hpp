// What everything that plans a run works with.
#pragma once

#include "trainer/events/event_stream.hpp"
#include "trainer/gradients/reducer.hpp"
#include "trainer/replica/replica.hpp"
#include "trainer/step/step_graphs.hpp"
#include "trainer/step/step_runner.hpp"

namespace onebatch {

struct PlanningParts {
  const Configuration& configuration;
  Replica& replica;
  MicroBatchRunner& runner;
  const Dataset& data;
  GradientReducer& reducer;
  comm::Communicator& control;
  EventStream& events;
  StepGraphs* graphs;  // may be none

  /// What is measured or rehearsed has all of the memory.
  void free_memory() const {
    if (graphs != nullptr) graphs->release();
  }

  /// BatchNorm takes its statistics from each micro-batch alone.
  [[nodiscard]] bool takes_local_statistics() const {
    return replica.has_batch_statistics && configuration.batch_norm.mode == BatchNormMode::local;
  }
};

}  // namespace onebatch
