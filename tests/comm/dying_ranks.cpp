// Starts a world and ends one rank in the way that is asked for: MODE is stuck, abort, leave or slurm.
#include "comm/error.hpp"
#include "comm/world.hpp"

#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

using namespace onebatch::comm;

int main(int argc, char** argv) {
  const char* mode = argc > 1 ? argv[1] : "";
  try {
    const auto world = World::create();
    world->set_timeout_seconds(2);
    world->control().barrier();
    const bool guilty = world->rank() == world->size() - 1;
    if (guilty && std::strcmp(mode, "stuck") == 0) std::this_thread::sleep_for(std::chrono::seconds(100));
    if (guilty && std::strcmp(mode, "abort") == 0) world->control().abort("the disk is full", 1);
    if (guilty && std::strcmp(mode, "leave") == 0) std::_Exit(9);
    world->control().barrier();
    world->close();
    return 0;
  } catch (const LaunchError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
