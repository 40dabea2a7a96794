// Whether a run's images and the weights of convolutions over them lie in channels_last.
#pragma once

#include "comm/communicator.hpp"
#include "trainer/data/dataset.hpp"
#include "trainer/device/compute_device.hpp"
#include "trainer/events/event_stream.hpp"
#include "trainer/graph/examination.hpp"
#include "trainer/models/model.hpp"

namespace onebatch {

struct ChannelsLastParts {
  const Configuration& configuration;
  const Dataset& data;
  const Model& model;  // the run's
  const ComputeDevice& device;
  const Examination& examination;
};

/// What precision.channels_last comes to, `on` or `off`, the same on all ranks. The model is tried on the host on rank
/// 0, in both orders: `true` is refused where they differ or one fails, "auto" is off there, which is said. Collective.
Switch settle_channels_last(const ChannelsLastParts& parts, comm::Communicator& control, EventStream& events);

}  // namespace onebatch
