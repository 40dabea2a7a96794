// A rank's siblings: those of this machine that the same launcher has started from the same program.
#pragma once

namespace onebatch::launch {

/// Returns as soon as `local_ranks` ranks of this machine, the caller among them, hear SIGUSR1, or after
/// `longest_milliseconds`. Before a rank hears it, while its libraries are still being loaded, the signal would be its
/// end. Calls nothing but the C library, since no other has started yet. Linux's /proc says what a process hears.
void wait_until_siblings_listen(int local_ranks, int longest_milliseconds);

}  // namespace onebatch::launch
