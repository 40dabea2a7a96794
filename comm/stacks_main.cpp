// onebatch-stacks PID: where the threads of a process are. A program of its own: the one that is stuck or dying cannot
// read itself.
#include "comm/thread_stacks.hpp"

#include <cstdio>
#include <cstdlib>
#include <exception>

int main(int argc, char** argv) {
  const long process = argc == 2 ? std::strtol(argv[1], nullptr, 10) : 0;
  if (process <= 0) {
    std::fputs("onebatch-stacks PID: prints where the threads of a process of yours are, and lets it go on\n", stderr);
    return 2;
  }
  try {
    std::fputs(onebatch::comm::to_text(onebatch::comm::read_thread_stacks(static_cast<pid_t>(process))).c_str(),
               stdout);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "onebatch-stacks: %s\n", error.what());
    return 1;
  }
  return 0;
}
