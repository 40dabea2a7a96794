// What the operating system knows of the other processes that the launcher started on this node: all there is to ask before ranks have met
// and after they have parted.
#pragma once

#include <string>

namespace onebatch::comm {

/// "\n  rank 1 (process 4711): its process is stopped" for each process of this job on this node that is stopped; empty where there is
/// none.
[[nodiscard]] std::string stopped_siblings();

/// How the operating system calls a process's state: "running", "stopped", "gone".
[[nodiscard]] std::string process_state(long process);

}  // namespace onebatch::comm
