// What the program does with a run's events. A sink is a file NAME.cpp with a function make_NAME, and its name in
// CMakeLists.txt: nothing else knows of it.
#pragma once

#include "trainer/events/event_stream.hpp"

#include <filesystem>
#include <string>

namespace onebatch::comm {
class World;
}  // namespace onebatch::comm

namespace onebatch::launch {

struct LoadedConfig;

struct SinkOptions {
  bool quiet = false;
  std::int64_t every_steps = 10;  // a line about a step
  std::filesystem::path run_dir;  // empty: there is none
  // What follows is borrowed; none where there is no folder.
  const LoadedConfig* loaded = nullptr;
  comm::World* world = nullptr;
  std::string as_typed = {};
};

/// All sinks, in the order in which they are listed. Written by CMake.
std::vector<Listener> make_sinks(const SinkOptions& options);

}  // namespace onebatch::launch
