// Whether a run's steps are recorded as graphs, and what is said of it.
#pragma once

#include "trainer/events/event_stream.hpp"
#include "trainer/step/step_graphs.hpp"
#include "trainer/step/step_runner.hpp"

namespace onebatch {

/// Null where the device, the configuration or the model is not for them: where they were asked for (run.cuda_graphs =
/// true), that is a fallback. Collective.
std::unique_ptr<StepGraphs> graphs_of_run(const Configuration& configuration, const MicroBatchRunner& runner,
                                          const Examination& examination, comm::Communicator& control,
                                          EventStream& events);

/// Says what any rank's graphs have to tell (null: this rank has none), and where the host draws for a GPU. Collective.
void say_news(StepGraphs* graphs, Switch asked, comm::Communicator& control, EventStream& events);

}  // namespace onebatch
