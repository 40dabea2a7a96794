// `onebatch plan` where no device is touched: from a saved profile, for clusters that are not here, over several global
// batches.
#pragma once

#include "launch/command_line.hpp"
#include "trainer/base/configuration.hpp"
#include "trainer/events/event_stream.hpp"
#include "trainer/plan/planner.hpp"

#include <optional>

namespace onebatch::launch {

/// Shows the plan or the comparison through the events and returns its document. `dataset_size`: none where the data is
/// not here. Throws UserError.
std::string plan_without_devices(const Arguments& arguments, const Configuration& configuration,
                                 std::optional<std::int64_t> dataset_size, EventStream& events);

/// The page of a plan, where one was asked for.
void write_plan_page(const Arguments& arguments, const EpochPlan& plan, EventStream& events);

/// A file's text. Throws UserError that says where it was looked for.
std::string read_file(const std::string& file);

}  // namespace onebatch::launch
