// The first line that the program says, before it has loaded anything: that it has begun, and with what.
#pragma once

namespace onebatch::launch {

/// Of a run's first rank, to standard output, when every rank of this machine hears SIGUSR1. Calls nothing but the C
/// library: meant for .preinit_array, with what the loader gives.
void say_first_line(int argc, char** argv, char** environment);

/// For the log file, which is opened later.
void log_first_line();

}  // namespace onebatch::launch
