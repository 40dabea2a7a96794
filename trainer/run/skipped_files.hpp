// Files of data that were skipped (data.on_broken = "skip"), as the user is told of them: each named once, and all
// counted at the end.
#pragma once

#include "comm/communicator.hpp"
#include "trainer/data/dataset.hpp"
#include "trainer/events/event_stream.hpp"

#include <set>
#include <string>
#include <string_view>

namespace onebatch {

/// Names those that any rank has met in `data` since it was last asked, and adds them to `named`: none is named again.
/// Collective.
void name_skipped_files(const Dataset& data, std::set<std::string>& named, comm::Communicator& control,
                        EventStream& events);
/// How many they are, and what has become of them, as in "12 of the data's files could not be read and …". Nothing
/// where there are none.
void count_skipped_files(const std::set<std::string>& named, std::string_view what_became, EventStream& events);

}  // namespace onebatch
