// What the program does with a run's events. A sink is a file NAME.cpp with a function make_NAME, and its name in
// CMakeLists.txt: nothing else knows of it.
#pragma once

#include "trainer/events/event_stream.hpp"

#include <filesystem>

namespace onebatch::launch {

struct SinkOptions {
  bool quiet = false;
  std::int64_t every_steps = 10;  // a line about a step
  std::filesystem::path run_dir;  // empty: there is none
  std::string as_typed;           // the command
  int rank = 0;
  int num_ranks = 1;
};

/// All sinks, in the order in which they are listed. Written by CMake.
std::vector<Listener> make_sinks(const SinkOptions& options);

}  // namespace onebatch::launch
