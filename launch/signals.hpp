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

/// From now on the scope that the environment speaks of; what came from `onebatch launch` before is noted too. Calls
/// nothing but the C library: meant for .preinit_array, with what the loader gives.
void listen_from_the_start(int argc, char** argv, char** environment);

/// From now on this scope's.
void listen_for_stop_signals(SignalScope scope);

/// For what has nothing to save: signals end the process again, those that came before too.
void stop_listening_for_signals();

/// mpirun returns the code of the rank that it has seen end first. For a rank under it that is about to end because
/// another has failed, after MPI's end: returns when the launcher has seen that one and ends those that are left, after
/// two seconds at most.
void let_the_failed_rank_end_first();

}  // namespace onebatch::launch
