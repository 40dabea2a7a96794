// Signals that mean: save and stop.
#pragma once

#include <atomic>

namespace onebatch::launch {

enum class SignalScope {
  ranks,  // one of several ranks: SIGUSR1 and SIGUSR2, which mpirun passes on
  alone   // a world of one, or a launcher that gives notice (Slurm): SIGTERM and SIGINT too; a second SIGINT ends at once
};

/// Installs the handlers; may be called again with a wider scope. Returns the flag that they set: the signal's number, 0 = none.
const std::atomic<int>* install_stop_signals(SignalScope scope);

}  // namespace onebatch::launch
