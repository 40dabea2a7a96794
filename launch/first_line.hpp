// The first line that the program says, before it has loaded anything: that it has begun, and with what.
#pragma once

namespace onebatch::launch {

/// For the log file, which is opened later.
void log_first_line();

}  // namespace onebatch::launch
