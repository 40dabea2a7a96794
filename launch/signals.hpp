// Signals that mean: save and stop. They are noted from before LibTorch's own start on, which takes most of a
// second.
#pragma once

#include <atomic>

namespace onebatch::launch {

/// Which of them a process answers to: one of several ranks to SIGUSR1 and SIGUSR2, which mpirun passes on; a world of
/// one, and one under a launcher that gives notice (Slurm), to SIGTERM and SIGINT too, of which a second one half a
/// second after the first ends it at once.
enum class SignalScope { ranks, alone };

/// The flag that they set: the signal's number, 0 = none.
const std::atomic<int>* stop_signal_flag();

/// From now on this scope's.
void listen_for_stop_signals(SignalScope scope);

/// For what has nothing to save: signals end the process again, those that came before too.
void stop_listening_for_signals();

}  // namespace onebatch::launch
