// What the operating system knows of the other processes that the launcher started on this node: all there is to ask
// before ranks have met and after they have parted.
#pragma once

#include "comm/status_board.hpp"

#include <string>
#include <vector>

namespace onebatch::comm {

/// The processes of this job on this node that are stopped; rank -1 where the launcher has not said which it is.
[[nodiscard]] std::vector<StatusBoard::Process> stopped_siblings();
/// "\n  rank 1 (process 4711): its process is stopped" for each.
[[nodiscard]] std::string to_text(const std::vector<StatusBoard::Process>& stopped);

/// How the operating system calls a process's state: "running", "stopped", "gone".
[[nodiscard]] std::string process_state(long process);

}  // namespace onebatch::comm
