// `onebatch predict`: what a trained model returns for the data's samples.
#pragma once

#include "comm/world.hpp"
#include "launch/command_line.hpp"
#include "trainer/base/configuration.hpp"
#include "trainer/events/event_stream.hpp"

namespace onebatch::launch {

/// Writes --out and says so; returns the document. Throws AgreedError, and what predict() throws. Collective.
std::string predict_outputs(const Arguments& arguments, const Configuration& configuration, comm::World& world,
                            EventStream& events);

}  // namespace onebatch::launch
